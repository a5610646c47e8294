"""What a plan goes through once its batches are cut: rows that must not meet are moved apart, and
swaps between batches raise the loss, if asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.errors import InputError
from batchplan.options import SimilarityOptions, check_temperature, option

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.guard.guard import Guard
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class PassOptions(SimilarityOptions):
    """The options of planners whose batches can be refined.

    Raises:
        InputError: fewer than 0 passes, or a temperature out of range.
    """

    refine: int = option(0, "Passes of swaps between batches that raise the training loss.")
    temperature: float = option(0.05, "tau of the NT-Xent loss.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        if self.refine < 0:
            raise InputError(f"refine: got {self.refine}, expected 0 passes or more")


def refined(
    plan: Plan,
    embeddings: Embeddings,
    options: PassOptions,
    runtime: Runtime,
    guard: Guard | None = None,
) -> Plan:
    """The plan of a planner after ``options.refine`` passes, with rows kept apart as ``guard``
    says; see `improved`."""
    from batchplan.guard.guard import Guard
    from batchplan.refinement import Passes, make_objective
    from batchplan.refinement.plan import improved

    guard = guard or Guard()
    if not guard.active and not options.refine:
        return plan
    objective = make_objective(
        embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
        guard=guard, price=getattr(options, "guard_price", None),
    )  # fmt: skip
    passes = Passes(most=options.refine)
    return improved(plan, embeddings, objective, runtime, passes, options.similarity)
