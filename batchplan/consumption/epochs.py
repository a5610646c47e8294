"""`Epoch`: what ranks should see, by the rows and offsets of a plan, and what they saw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchplan.consumption.traces import Pass
from batchplan.plans.plan import Plan
from batchplan.plans.validation import Int64Array

EXACT, DIFFERS, MISSING = range(3)


def key(rows: Int64Array) -> bytes:
    """What is equal for batches of the same rows, in any order."""
    return np.sort(rows).tobytes()


def steps_of(plan: Plan, devices: int) -> list[list[Int64Array]]:
    """The rows that each of so many devices should see in each step: ``[rank][step]``.

    A plan for one device is dealt out batch by batch; that for several says which device gets what,
    whatever ``devices`` is.
    """
    batches = list(plan.batches())
    planned = plan.metadata.world_size
    if planned > 1 and plan.metadata.scope == "global":
        parts = [np.array_split(batch, planned) for batch in batches]
        return [[step[rank] for step in parts] for rank in range(planned)]
    count = devices if planned == 1 else planned
    return [batches[rank::count] for rank in range(count)]


@dataclass
class Epoch:
    """An epoch of a trace beside its plan.

    Attributes:
        number: from 0.
        plan: that of the epoch.
        expected: what each rank should see in each step.
        passes: what each rank saw.
        first: the first step that was recorded; those before it are not judged.
        others: other plans, by their first epoch.
        known: digests of all plans.
        over: whether the trace goes on after this epoch, or has no steps at all.
        partial: whether the run may go on.
    """

    number: int
    plan: Plan
    expected: list[list[Int64Array]]
    passes: list[Pass]
    first: int
    others: dict[int, Plan]
    known: set[str]
    over: bool
    partial: bool = False

    @property
    def devices(self) -> int:
        return len(self.passes)

    @cached_property
    def wanted(self) -> list[list[bytes]]:
        """The keys of ``expected``."""
        return [[key(rows) for rows in steps] for steps in self.expected]

    @cached_property
    def seen(self) -> list[dict[int, bytes]]:
        """The keys of what each rank saw in each step."""
        return [{step: key(rows) for step, rows in run.rows.items()} for run in self.passes]

    @cached_property
    def order(self) -> list[bytes]:
        """The keys of all parts of the plan, step after step."""
        longest = max(map(len, self.wanted))
        return [
            steps[step] for step in range(longest) for steps in self.wanted if step < len(steps)
        ]

    @cached_property
    def grid(self) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
        """int8 (ranks, steps): EXACT, DIFFERS or MISSING, which a step also is that other ranks
        have."""
        ranks = max(len(self.wanted), self.devices)
        steps = max(*map(len, self.wanted), *(run.steps for run in self.passes))
        grid = np.full((ranks, max(steps - self.first, 0)), EXACT, np.int8)
        for rank in range(ranks):
            wanted = self.wanted[rank] if rank < len(self.wanted) else []
            seen = self.seen[rank] if rank < self.devices else {}
            for step in range(self.first, steps):
                if step not in seen:
                    grid[rank, step - self.first] = MISSING
                elif step >= len(wanted) or seen[step] != wanted[step]:
                    grid[rank, step - self.first] = DIFFERS
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
