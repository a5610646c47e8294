"""Random batches: a uniform permutation, the baseline that every planner has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.planners.cutting import cut
from batchplan.planners.options import PlannerOptions
from batchplan.planners.refining import RefineOptions, refined

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class RandomOptions(RefineOptions, PlannerOptions):
    """`random` has no options of its own."""


def random(embeddings: Embeddings, options: RandomOptions, runtime: Runtime) -> Plan:
    """Plan by a uniform permutation drawn from the seed.

    Args:
        embeddings: N pairs; only their number matters.
        options: how to cut batches.
        runtime: the seed.

    Raises:
        InputError: a batch size above N.
    """
    order = runtime.generator().permutation(embeddings.num_rows)
    plan = cut(order, "random", embeddings, options, runtime)
    return refined(plan, embeddings, options, runtime)
