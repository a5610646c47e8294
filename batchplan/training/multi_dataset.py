"""Joins the plans of several data sets to one plan for each epoch."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.plans.concatenation import concat
from batchplan.plans.plan import BEGUN, Plan
from batchplan.plans.steps import batches_per_step
from batchplan.training.arguments import checked, row_numbers
from batchplan.training.epochs import EpochPlans
from batchplan.training.vectors import warn_of_cost
from batchplan.typing import Int64Array

Order = Literal["proportional", "round_robin"]


class MultiDatasetPlans:
    """Plans of several data sets, joined for each epoch.

        sets = {"questions": questions, "titles": titles}
        plans = MultiDatasetPlans({
            name: EpochPlans(f"plans/{name}", embed=..., num_rows=len(own), batch_size=64)
            for name, own in sets.items()
        })
        rows = ConcatDataset(sets.values())
        loader = DataLoader(rows, batch_sampler=PlanBatchSampler(plans, dataset=rows))

    Row r of a data set becomes r plus the rows of the data sets before it, as in a ConcatDataset.
    Each step, on all devices, has rows of one data set.

    Args:
        plans: the plans of each data set, by its name, in the order of the data.
        order: the data set of each step. ``proportional``: each step of every plan once, in random
            order. ``round_robin``: each data set in turn, until the smallest has no steps left. A
            number alpha from 0 to 1: as many steps in all as ``proportional``, in random order.
            Each data set gets a share proportional to (its steps)**alpha: it repeats its plan if
            it gets more steps than that has, and leaves out its last batches if it gets fewer.
        seed: the seed of the order of epoch e is ``seed + e``.

    Attributes:
        plans: the plans of each data set.
        batching: how the rows of every plan are cut.
        num_rows: rows of all data sets.
        ends: int64, the number of rows up to the end of each data set.
        rank: of this process.

    Raises:
        InputError: there are fewer than two data sets, the order is unknown, or the plans cut rows
            in different ways.
    """

    @checked
    def __init__(
        self,
        plans: Mapping[str, EpochPlans],
        *,
        order: Order | float = "proportional",
        seed: int = 0,
    ) -> None:
        if len(plans) < 2:
            raise InputError(f"data sets: got {len(plans)}, expected at least two")
        self.plans = dict(plans)
        self._order, self._seed = order, seed
        first_name, first = next(iter(plans.items()))
        for name, own in plans.items():
            if not isinstance(own, EpochPlans):
                raise InputError(f"{name}: got a {type(own).__name__}, expected EpochPlans")
            if own.batching != first.batching:
                raise InputError(
                    f"{name}: its plans have {own.batching}, but plans of {first_name} "
                    f"have {first.batching}, expected the same"
                )
            own._run |= {"order": order, "order_seed": seed}
        self.batching, self.rank = first.batching, first.rank
        self.ends: Int64Array = np.cumsum([own.num_rows for own in plans.values()])
        self.num_rows = int(self.ends[-1])
        self._joined: tuple[int, Plan] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_joined": None}

    def path(self, epoch: int) -> Path:
        """Return the folder of the plans that are joined for an epoch."""
        return Path(os.path.commonpath([own.path(epoch) for own in self.plans.values()]))

    def num_batches(self) -> int:
        """Return the number of batches of every plan."""
        return len(self._turns(0)) * self._at_once

    def is_undecided(self, epoch: int) -> bool:
        """As `EpochPlans.is_undecided`, of any data set."""
        return any(own.is_undecided(epoch) for own in self.plans.values())

    def for_epoch(self, epoch: int) -> Plan:
        """Return the joined plan of an epoch, counted from 0. Raises as `EpochPlans.for_epoch`."""
        rows = sum(own.rows_to_embed(epoch) for own in self.plans.values())
        warn_of_cost(epoch, rows, self.num_rows)
        return self._join(epoch, [own.for_epoch(epoch) for own in self.plans.values()])

    def existing(self, epoch: int) -> Plan:
        """Return the joined plan of an epoch that was planned before. Raises as
        `EpochPlans.existing`."""
        return self._join(epoch, [own.existing(epoch) for own in self.plans.values()])

    def begun(self, epoch: int) -> str | None:
        """As `EpochPlans.begun`, of the joined plan."""
        paths = {name: own.path(epoch) for name, own in self.plans.items()}
        if not all(path.exists() for path in paths.values()):
            return None
        plans = {name: Plan.load(path) for name, path in paths.items()}
        return concat(plans, turns=self._turns(epoch), seed=self._seed + epoch).digest

    def turn(self, epoch: int) -> int | None:
        """As `EpochPlans.turn`, of the data set whose turn is first."""
        return min((turn for turn, _ in self._pending(epoch)), default=None)

    def for_rest(self, epoch: int) -> Plan:
        """As `EpochPlans.for_rest`, for the data set whose turn is first."""
        _, turned = min(self._pending(epoch))
        self._joined = None
        plans = [
            own.for_rest(epoch) if number == turned else own.for_epoch(epoch)
            for number, own in enumerate(self.plans.values())
        ]
        return self._join(epoch, plans)

    def _pending(self, epoch: int) -> list[tuple[int, int]]:
        """Return the batch and the number of each data set that has a turn to come."""
        turns = [own.turn(epoch) for own in self.plans.values()]
        if not any(turns):
            return []
        order = self._turns(epoch)
        places = [np.flatnonzero(order == number) for number in range(len(turns))]
        return [
            (int(own[turn // self._at_once]) * self._at_once, number)
            for number, (own, turn) in enumerate(zip(places, turns, strict=True))
            if turn is not None and turn // self._at_once < len(own)
        ]

    def set_of(self, row: int) -> str:
        """Return the name of the data set of a row."""
        return list(self.plans)[self._number_of(row_numbers([row], self.num_rows))]

    def record(self, rows: Any, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of a step; see `EpochPlans.record`. All its rows are of one data set."""
        numbers = row_numbers(rows, self.num_rows)
        if not numbers.size:
            next(iter(self.plans.values()))._known_vectors.record(numbers, x, y, *negatives)
            return
        number = self._number_of(numbers)
        own = list(self.plans.values())[number]
        own.record(numbers - (self.ends[number] - own.num_rows), x, y, *negatives)

    def resume(self) -> None:
        """Go on with the run whose plans are in the folders."""
        for own in self.plans.values():
            own.resume()

    def end(self) -> None:
        """End the run, so that another process may use the folders."""
        for own in self.plans.values():
            own.end()
        self._joined = None

    @property
    def figures(self) -> dict[str, float]:
        """The figures of all data sets, as ``name/gain``; see `EpochPlans`."""
        return {
            f"{name}/{figure}": value
            for name, own in self.plans.items()
            for figure, value in own.figures.items()
        }

    @property
    def _at_once(self) -> int:
        return batches_per_step(self.batching.world_size, self.batching.scope)

    def _number_of(self, rows: Int64Array) -> int:
        """Return the number of the data set of some rows."""
        number, *others = np.unique(np.searchsorted(self.ends, rows, "right")).tolist()
        if others:
            names = list(self.plans)
            raise InputError(
                f"rows: got some of {names[number]} and some of {names[others[0]]}, expected those "
                "of one data set in each step"
            )
        return int(number)

    def _join(self, epoch: int, plans: list[Plan]) -> Plan:
        if self._joined is None or self._joined[0] != epoch:
            named = dict(zip(self.plans, plans, strict=True))
            joined = concat(named, turns=self._turns(epoch), seed=self._seed + epoch)
            if any(BEGUN in plan.metadata.options for plan in plans):
                options = {**joined.metadata.options, BEGUN: self.begun(epoch)}
                joined = joined.with_metadata(options=options)
            self._joined = epoch, joined
        return self._joined[1]

    def _turns(self, epoch: int) -> Int64Array:
        """Return the number of the data set of each step: int64 (steps,)."""
        steps = np.array([own.num_batches() // self._at_once for own in self.plans.values()])
        if self._order == "round_robin":
            return np.tile(np.arange(len(steps)), steps.min())
        if self._order != "proportional":
            steps = _apportioned(int(steps.sum()), steps ** float(self._order))
        shuffle = np.random.Generator(np.random.Philox(self._seed + epoch))
        return shuffle.permutation(np.repeat(np.arange(len(steps)), steps))


def _apportioned(total: int, weights: NDArray[np.float64]) -> Int64Array:
    """Return whole numbers that sum to ``total``, close to shares by weight. The largest remainders
    are rounded up; of equal ones, the first."""
    shares = total * weights / weights.sum()
    counts: Int64Array = np.floor(shares).astype(np.int64)
    left = total - counts.sum()
    counts[np.argsort(counts - shares, kind="stable")[:left]] += 1
    return counts
