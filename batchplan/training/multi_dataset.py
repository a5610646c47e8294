"""The plans of several data sets, joined to one for each epoch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.plans.batching import Batching
from batchplan.plans.concatenation import concat
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step
from batchplan.training.epochs import EpochPlans

Int64Array = NDArray[np.int64]
Order = Literal["proportional", "round_robin"]


class MultiDatasetPlans:
    """Plans of several data sets, joined for each epoch.

        sets = {"questions": questions, "titles": titles}
        plans = MultiDatasetPlans({
            name: EpochPlans(f"plans/{name}", embed=..., num_rows=len(rows), batch_size=64)
            for name, rows in sets.items()
        })
        loader = DataLoader(ConcatDataset(sets.values()), batch_sampler=PlanBatchSampler(plans))

    Row r of a data set becomes r plus the rows of the data sets before it, as in a ConcatDataset.
    Each step, on all devices, has rows of one data set.

    Args:
        plans: those of each data set, by its name, in the order of the data.
        order: which data set each step is taken from. ``proportional``: at random, each step of
            every plan once. ``round_robin``: each data set in turn, as often as the smallest has
            steps. A number alpha from 0 to 1: at random, as many steps in all as ``proportional``,
            of which each data set gets a share proportional to (its steps)**alpha. A data set with
            more turns than steps repeats its plan; one with fewer leaves out its last batches.
        seed: of the order of epoch e is ``seed + e``.

    Attributes:
        plans: those of each data set.
        batching: how the rows of every plan are cut.
        rank: of this process.

    Raises:
        InputError: fewer than two data sets, an unknown order, or plans that cut rows in different
            ways.
    """

    def __init__(
        self,
        plans: Mapping[str, EpochPlans],
        *,
        order: Order | float = "proportional",
        seed: int = 0,
    ) -> None:
        if len(plans) < 2:
            raise InputError(f"data sets: got {len(plans)}, expected at least two")
        known = order in get_args(Order) if isinstance(order, str) else 0 <= order <= 1
        if not known:
            raise InputError(
                f"order: got {order!r}, expected proportional, round_robin, or a number from 0 to 1"
            )
        self.plans = dict(plans)
        self._order, self._seed = order, seed
        first_name, first = next(iter(plans.items()))
        self.batching: Batching = first.batching
        self.rank = first.rank
        for name, own in plans.items():
            if own.batching != first.batching:
                raise InputError(
                    f"{name}: its plans have {own.batching}, those of {first_name} have "
                    f"{first.batching}, expected the same"
                )
        counts = np.array([own.num_rows for own in plans.values()])
        self._ends: Int64Array = np.cumsum(counts)
        self.num_rows = int(self._ends[-1])
        self._joined: tuple[int, Plan] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_joined": None}

    def path(self, epoch: int) -> Path:
        """The folder of the files that the plan of an epoch is joined from."""
        return Path(os.path.commonpath([own.path(epoch) for own in self.plans.values()]))

    def num_batches(self) -> int:
        """Batches of every plan."""
        return len(self._turns(0)) * self._at_once

    def for_epoch(self, epoch: int) -> Plan:
        """The joined plan of an epoch, counted from 0; raises as `EpochPlans.for_epoch`."""
        return self._join(epoch, [own.for_epoch(epoch) for own in self.plans.values()])

    def existing(self, epoch: int) -> Plan:
        """The joined plan of an epoch whose plans were made before; raises as
        `EpochPlans.existing`."""
        return self._join(epoch, [own.existing(epoch) for own in self.plans.values()])

    def set_of(self, row: int) -> str:
        """The name of the data set of a row."""
        return list(self.plans)[self._number_of(row)]

    def record(self, rows: Any, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of a step, which has rows of one data set; see `EpochPlans.record`."""
        numbers = np.asarray(rows, np.int64)
        number = self._number_of(int(numbers[0]))
        own = list(self.plans.values())[number]
        own.record(numbers - (self._ends[number] - own.num_rows), x, y, *negatives)

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
    def _at_once(self) -> int:
        return batches_per_step(self.batching.world_size, self.batching.scope)

    def _number_of(self, row: int) -> int:
        return int(np.searchsorted(self._ends, row, "right"))

    def _join(self, epoch: int, plans: list[Plan]) -> Plan:
        if self._joined is None or self._joined[0] != epoch:
            named = dict(zip(self.plans, plans, strict=True))
            joined = concat(named, turns=self._turns(epoch), seed=self._seed + epoch)
            self._joined = epoch, joined
        return self._joined[1]

    def _turns(self, epoch: int) -> Int64Array:
        """The number of the data set of each step: int64 (steps,)."""
        turns: Int64Array
        steps = np.array([own.num_batches() // self._at_once for own in self.plans.values()])
        if self._order == "round_robin":
            turns = np.tile(np.arange(len(steps)), steps.min())
            return turns
        if self._order != "proportional":
            steps = _apportioned(int(steps.sum()), steps ** float(self._order))
        shuffle = np.random.Generator(np.random.Philox(self._seed + epoch))
        turns = shuffle.permutation(np.repeat(np.arange(len(steps)), steps))
        return turns


def _apportioned(total: int, weights: NDArray[np.float64]) -> Int64Array:
    """Whole numbers that sum to ``total``, as near to shares by weight as can be: the largest
    remainders are rounded up, of equal ones the first."""
    shares = total * weights / weights.sum()
    counts: Int64Array = np.floor(shares).astype(np.int64)
    left = total - counts.sum()
    counts[np.argsort(counts - shares, kind="stable")[:left]] += 1
    return counts
