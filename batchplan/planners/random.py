"""Random batches: the baselines for every planner.

`fixed` and `shuffled` are the non-adaptive batch selections of "Mini-Batch Optimization of
Contrastive Loss" (2023), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchplan import data
from batchplan.options import option
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.options import PassOptions, PlannerOptions
from batchplan.runtime import Runtime

_EPOCH = 2  # generator stream of epochs after the first


@dataclass(frozen=True, kw_only=True)
class RandomOptions(PassOptions, PlannerOptions):
    """`random` and `fixed` have no options of their own."""


@dataclass(frozen=True, kw_only=True)
class ShuffledOptions(PassOptions, PlannerOptions):
    """Options of `shuffled`."""

    epoch: int = option(0, "Epoch number, from 0. Each epoch has its own permutation.", ge=0)


def random(embeddings: data.Embeddings, options: RandomOptions, runtime: Runtime) -> Draft:
    """Plan by a uniform permutation drawn from the seed; under the name `fixed`, for all epochs.

    Args:
        embeddings: N pairs; only their number matters.
        options: how to cut batches.
        runtime: the seed.
    """
    return Draft(rows=runtime.generator().permutation(embeddings.num_rows))


def shuffled(embeddings: data.Embeddings, options: ShuffledOptions, runtime: Runtime) -> Draft:
    """Plan by a permutation drawn from the seed and the epoch; epoch 0 has that of `fixed`.

    Args:
        embeddings: N pairs; only their number matters.
        options: the epoch, and how to cut batches.
        runtime: the seed.
    """
    stream = (_EPOCH, options.epoch) if options.epoch else ()
    return Draft(rows=runtime.generator(*stream).permutation(embeddings.num_rows))
