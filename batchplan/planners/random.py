"""Random batches: the baselines that every planner has to beat.

`fixed` and `shuffled` are the non-adaptive batch selections of "Mini-Batch Optimization of
Contrastive Loss" (2023), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.errors import InputError
from batchplan.options import option
from batchplan.planners.common.cut import cut
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.common.refine import PassOptions, refined

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime

_EPOCH = 2  # the generator stream of the epochs after the first


@dataclass(frozen=True, kw_only=True)
class RandomOptions(PassOptions, PlannerOptions):
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


@dataclass(frozen=True, kw_only=True)
class FixedOptions(PassOptions, PlannerOptions):
    """`fixed` has no options of its own."""


@dataclass(frozen=True, kw_only=True)
class ShuffledOptions(PassOptions, PlannerOptions):
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
