"""What planners return: the frame makes plans and tables of negatives of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from batchplan.guard.guard import Guard
    from batchplan.plans.plan import Plan

Facts = Mapping[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Draft:
    """An order of the rows, or batches, and what is known about them.

    Attributes:
        rows: integers (N,), a permutation of the rows that the frame cuts into batches; or, with
            ``offsets``, (entries,), the rows of all batches.
        offsets: integers (batches + 1,), where each batch starts. The batches then stay as they
            are, but for those that fill no step of all devices.
        repeatable: whether such a step may be filled with batches that come just before.
        guard: the rows that the frame moves apart, at the end; None for none.
        refined: whether the planner has refined the batches and kept rows apart itself.
        facts: metrics of the plan, or a function of the plan that gives them.
        stored: options that are stored in another way than they were given.
    """

    rows: ArrayLike
    offsets: ArrayLike | None = None
    repeatable: bool = True
    guard: Guard | None = None
    refined: bool = False
    facts: Facts | Callable[[Plan], Facts] = field(default_factory=dict)
    stored: Facts = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Mined:
    """Negatives of every row.

    Attributes:
        negatives: int64 (N, M).
        probabilities: float32 (N, M), of drawing each; None where they are certain.
        mixup: float32 (N, M), coefficients of latent mixup; None where none were asked for.
    """

    negatives: ArrayLike
    probabilities: ArrayLike | None = None
    mixup: ArrayLike | None = None
