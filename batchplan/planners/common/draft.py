"""The results of planners, which `finish` turns into plans and tables of negatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from batchplan.guard.guard import Guard
    from batchplan.plans.plan import Plan
    from batchplan.typing import Float32Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Draft:
    """An order of the rows, or batches, and facts about them.

    Attributes:
        rows: integers (N,), a permutation of the rows, which is cut into batches; or, with
            ``offsets``, (entries,), the rows of all batches.
        offsets: integers (batches + 1,), where each batch starts. These batches stay as they are,
            except for an incomplete last step.
        leftover: whether the last of these batches stays last when batches are shuffled.
        guard: the guard by which the batches are repaired at the end; None for no repair.
        blind: whether similarities do not matter to the batches. Then the guard, which has no
            limit, fills them, and there is no repair.
        refined: whether the planner has refined, repaired and shuffled the batches itself.
        facts: metrics of the plan.
        stored: options that the plan stores with another value than the run had.
        last: changes the finished plan.
    """

    rows: ArrayLike
    offsets: ArrayLike | None = None
    leftover: bool = False
    guard: Guard | None = None
    blind: bool = False
    refined: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] = field(default_factory=dict)
    last: Callable[[Plan], Plan] | None = None


@dataclass(frozen=True, eq=False)
class Mined:
    """The negatives of each row.

    Attributes:
        negatives: int64 (n, M), of each anchor.
        anchors: int64 (n,), the rows that have negatives; None for all N.
        probabilities, mixup: see `batchplan.Negatives`.
    """

    negatives: ArrayLike
    anchors: ArrayLike | None = None
    probabilities: Float32Array | None = None
    mixup: Float32Array | None = None
