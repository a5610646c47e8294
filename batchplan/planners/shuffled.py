"""Random batches that stay, or that change each epoch: the baselines of the mini-batch paper.

"Mini-Batch Optimization of Contrastive Loss" (2023), section 4, non-adaptive batch selection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.errors import InputError
from batchplan.options import option
from batchplan.planners.cutting import cut
from batchplan.planners.options import PlannerOptions
from batchplan.planners.refining import RefineOptions, refined

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime

_EPOCH = 2  # the generator stream of the epochs after the first


@dataclass(frozen=True, kw_only=True)
class FixedOptions(RefineOptions, PlannerOptions):
    """`fixed` has no options of its own."""


@dataclass(frozen=True, kw_only=True)
class ShuffledOptions(RefineOptions, PlannerOptions):
    """Options of `shuffled`.

    Raises:
        InputError: as `PlannerOptions`; a negative epoch.
    """

    epoch: int = option(0, "Number of the epoch, from 0; each has a permutation of its own.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epoch < 0:
            raise InputError(f"epoch: got {self.epoch}, expected 0 or more")


def fixed(embeddings: Embeddings, options: FixedOptions, runtime: Runtime) -> Plan:
    """Plan by one permutation of the seed, meant for all epochs: the rows of `random`.

    Args:
        embeddings: N pairs; only their number matters.
        options: how to cut batches.
        runtime: the seed.
    """
    order = runtime.generator().permutation(embeddings.num_rows)
    plan = cut(order, "fixed", embeddings, options, runtime)
    return refined(plan, embeddings, options, runtime)


def shuffled(embeddings: Embeddings, options: ShuffledOptions, runtime: Runtime) -> Plan:
    """Plan by a permutation of the seed and the epoch; that of epoch 0 is `fixed`'s.

    Args:
        embeddings: N pairs; only their number matters.
        options: the epoch, and how to cut batches.
        runtime: the seed.
    """
    stream = (_EPOCH, options.epoch) if options.epoch else ()
    order = runtime.generator(*stream).permutation(embeddings.num_rows)
    plan = cut(order, "shuffled", embeddings, options, runtime)
    return refined(plan, embeddings, options, runtime)
