"""`Epoch`: what ranks should see, by the rows and offsets of a plan, and what they saw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchplan.consumption.traces import Pass, key
from batchplan.plans.plan import Plan
from batchplan.typing import Int64Array

EXACT, DIFFERS, MISSING = range(3)


@dataclass(frozen=True, eq=False)
class Dealt:
    """A plan dealt out to ranks. Epochs share it, so that its work is done once.

    A plan for one device is dealt out batch by batch; that for several says which device gets what,
    whatever ``devices`` is.

    Attributes:
        plan: of any number of devices.
        devices: ranks that trained.
    """

    plan: Plan
    devices: int

    @cached_property
    def steps(self) -> list[list[Int64Array]]:
        """The rows that each rank should see in each step: ``[rank][step]``."""
        batches = list(self.plan.batches())
        planned = self.plan.metadata.world_size
        if planned > 1 and self.plan.metadata.scope == "global":
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
        """The keys of all parts, step after step."""
        longest = max(map(len, self.keys))
        return [steps[step] for step in range(longest) for steps in self.keys if step < len(steps)]

    @cached_property
    def rows(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The distinct rows in ascending order, where each first is in the plan, and how often."""
        rows, first, counts = np.unique(self.plan.rows, return_index=True, return_counts=True)
        return rows, first, counts

    def find(self, rows: Int64Array) -> Int64Array:
        """Where each row is among the distinct ones, -1 for one that is not in the plan."""
        distinct = self.rows[0]
        if distinct[-1] == len(distinct) - 1:  # all rows; searching takes ten times as long
            return np.where(rows < len(distinct), rows, -1)
        places = np.searchsorted(distinct, rows).clip(max=len(distinct) - 1)
        return np.where(distinct[places] == rows, places, -1)


@dataclass
class Epoch:
    """An epoch of a trace beside its plan.

    Attributes:
        number: from 0.
        dealt: the plan of the epoch.
        passes: what each rank saw.
        first: the first step that was recorded; those before it are not judged.
        others: other plans, by their first epoch.
        known: digests of all plans.
        over: whether the trace goes on after this epoch, or has no steps at all.
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
        return len(self.passes)

    @property
    def plan(self) -> Plan:
        return self.dealt.plan

    @property
    def expected(self) -> list[list[Int64Array]]:
        """What each rank should see in each step."""
        return self.dealt.steps

    @property
    def wanted(self) -> list[list[bytes]]:
        """The keys of ``expected``."""
        return self.dealt.keys

    @property
    def order(self) -> list[bytes]:
        """The keys of all parts of the plan, step after step."""
        return self.dealt.order

    @property
    def seen(self) -> list[dict[int, bytes]]:
        """The keys of what each rank saw in each step."""
        return [run.keys for run in self.passes]

    @cached_property
    def grid(self) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
        """int8 (ranks, steps): EXACT, DIFFERS or MISSING, which a step also is that other ranks
        have."""
        ranks = max(len(self.wanted), self.devices)
        steps = max(*map(len, self.wanted), *(run.steps for run in self.passes))
        grid = np.full((ranks, max(steps - self.first, 0)), MISSING, np.int8)
        for rank, seen in enumerate(self.seen):
            wanted = self.wanted[rank] if rank < len(self.wanted) else []
            for step, own in seen.items():
                if step >= self.first:
                    exact = step < len(wanted) and own == wanted[step]
                    grid[rank, step - self.first] = EXACT if exact else DIFFERS
        return grid

    @property
    def exact(self) -> bool:
        return not self.grid.any() or (self.partial and not self.over and self.is_prefix)

    @cached_property
    def is_prefix(self) -> bool:
        """Whether all ranks saw what they should from the first step on, but not to the end."""
        return bool(
            (self.grid != DIFFERS).all()
            and (np.diff((self.grid == MISSING).astype(np.int8), axis=1) >= 0).all()
        )

    @cached_property
    def intact(self) -> tuple[int, int]:
        """How many parts of the plan were a batch of some step, of how many."""
        seen = Counter(batch for steps in self.seen for batch in steps.values())
        parts = Counter(self.order[self.first * len(self.wanted) :])
        return (seen & parts).total(), parts.total()

    def steps(self, rank: int) -> list[bytes]:
        """The keys of what a rank saw, in order."""
        return [self.seen[rank][step] for step in sorted(self.seen[rank])]

    def rows(self, rank: int) -> list[Int64Array]:
        """What a rank saw, in order."""
        return [self.passes[rank].rows[step] for step in sorted(self.passes[rank].rows)]

    def ended(self) -> bool:
        """Whether all loaders came to an end."""
        return self.over or all(run.ended for run in self.passes)
