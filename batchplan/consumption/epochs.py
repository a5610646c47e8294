"""The steps of an epoch: what each rank should see according to the plan, and what it saw."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from typing import TypeVar

import numpy as np

from batchplan.consumption.traces import Pass, key
from batchplan.plans.plan import Plan
from batchplan.typing import Int64Array

T = TypeVar("T")
EXACT, DIFFERS, MISSING = range(3)


@dataclass(frozen=True, eq=False)
class Dealt:
    """The steps that each rank should see. Epochs with the same plan share it.

    The batches of a plan for one device go to the ranks in turn. A plan for several devices defines
    which device gets which batch, whatever ``devices`` is.

    Attributes:
        plan: a plan for any number of devices.
        devices: number of ranks that trained.
    """

    plan: Plan
    devices: int

    @property
    def joined(self) -> bool:
        """Whether the rows of all ranks in a step are one batch."""
        return self.plan.metadata.world_size > 1 and self.plan.metadata.scope == "global"

    @cached_property
    def steps(self) -> list[list[Int64Array]]:
        """The rows that each rank should see in each step: ``[rank][step]``."""
        batches = list(self.plan.batches())
        planned = self.plan.metadata.world_size
        if self.joined:
            parts = [np.array_split(batch, planned) for batch in batches]
            return [[step[rank] for step in parts] for rank in range(planned)]
        count = self.devices if planned == 1 else planned
        return [batches[rank::count] for rank in range(count)]

    @cached_property
    def keys(self) -> list[list[bytes]]:
        """The keys of ``steps``."""
        return [[key(rows) for rows in steps] for steps in self.steps]

    @cached_property
    def order(self) -> list[bytes]:
        """The keys of all ranks' steps, step after step."""
        return in_turn(self.keys)

    @cached_property
    def rows(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The distinct rows in rising order, the first place of each in the plan, and how often
        the plan has each."""
        rows, first, counts = np.unique(self.plan.rows, return_index=True, return_counts=True)
        return rows, first, counts

    def find(self, rows: Int64Array) -> Int64Array:
        """The index of each row among the distinct rows; -1 if the plan does not have the row."""
        distinct = self.rows[0]
        if distinct[-1] == len(distinct) - 1:  # all rows, so no search, which takes 10 times longer
            return np.where(rows < len(distinct), rows, -1)
        places = np.searchsorted(distinct, rows).clip(max=len(distinct) - 1)
        return np.where(distinct[places] == rows, places, -1)


@dataclass
class Epoch:
    """An epoch of a trace and its plan.

    Attributes:
        number: from 0.
        dealt: the plan of the epoch.
        passes: what each rank saw.
        first: the first recorded step; earlier steps are not judged.
        others: the plans of other epochs, by their first epoch.
        known: digests of all plans.
        over: whether the trace has later epochs, or no steps at all.
        partial: whether the run may go on.
    """

    number: int
    dealt: Dealt
    passes: list[Pass]
    first: int
    others: dict[int, Dealt]
    known: set[str]
    over: bool
    partial: bool = False

    @property
    def devices(self) -> int:
        """Number of ranks that trained."""
        return len(self.passes)

    @cached_property
    def seen(self) -> list[list[bytes]]:
        """The keys of the batches that each rank saw, in order."""
        return [list(run.keys.values()) for run in self.passes]

    @cached_property
    def rows(self) -> list[list[Int64Array]]:
        """The batches that each rank saw, in order."""
        return [list(run.rows.values()) for run in self.passes]

    @property
    def planned(self) -> list[Int64Array]:
        """The batches of the plan, from the first recorded step on."""
        each = 1 if self.dealt.joined else len(self.dealt.steps)
        return list(self.dealt.plan.batches())[self.first * each :]

    @property
    def trained(self) -> list[Int64Array]:
        """The rows of each batch that was seen, from the first recorded step on."""
        runs = [{s: rows for s, rows in run.rows.items() if s >= self.first} for run in self.passes]
        if not self.dealt.joined:
            return [rows for run in runs for rows in run.values()]
        steps = sorted(set().union(*runs))
        return [np.concatenate([run[step] for run in runs if step in run]) for step in steps]

    @cached_property
    def grid(self) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
        """int8 (ranks, steps): EXACT, DIFFERS or MISSING. A step that only other ranks have is
        MISSING."""
        wanted = self.dealt.keys
        ranks = max(len(wanted), self.devices)
        steps = max(*map(len, wanted), *(run.steps for run in self.passes))
        grid = np.full((ranks, max(steps - self.first, 0)), MISSING, np.int8)
        for rank, run in enumerate(self.passes):
            own = wanted[rank] if rank < len(wanted) else []
            for step, seen in run.keys.items():
                if step >= self.first:
                    exact = step < len(own) and own[step] == seen
                    grid[rank, step - self.first] = EXACT if exact else DIFFERS
        return grid

    @property
    def exact(self) -> bool:
        """Whether all ranks saw the steps of the plan; so far, if the run may go on."""
        return not self.grid.any() or (self.partial and not self.over and self.is_prefix)

    @cached_property
    def is_prefix(self) -> bool:
        """Whether all ranks saw the steps of the plan, or only lack steps at the end."""
        missing = (self.grid == MISSING).astype(np.int8)
        return not (self.grid == DIFFERS).any() and bool((np.diff(missing, axis=1) >= 0).all())

    @cached_property
    def intact(self) -> tuple[int, int]:
        """How many steps of the plan some rank saw whole, and how many the plan has."""
        seen = Counter(chain(*self.seen))
        parts = Counter(self.dealt.order[self.first * len(self.dealt.keys) :])
        return (seen & parts).total(), parts.total()

    @property
    def ended(self) -> bool:
        """Whether all loaders came to an end."""
        return self.over or all(run.ended for run in self.passes)


def in_turn(steps: Sequence[Sequence[T]]) -> list[T]:
    """Return the steps of all ranks in one list: step 0 of each rank, then step 1 and so on."""
    return [part for parts in zip_longest(*steps) for part in parts if part is not None]
