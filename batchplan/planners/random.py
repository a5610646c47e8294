"""Random batches: the baselines of all planners.

`random` has the same batches in every epoch, `shuffled` new ones. They are the two selections in
"Mini-Batch Optimization of Contrastive Loss" (2023), section 4, that do not depend on the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchplan import data, guard
from batchplan.guard.options import OptionalGuardOptions
from batchplan.options import option
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.options import PassOptions, PlannerOptions
from batchplan.runtime import Runtime

_EPOCH = 2  # generator stream of epochs after the first


@dataclass(frozen=True, kw_only=True)
class RandomOptions(OptionalGuardOptions, PassOptions, PlannerOptions):
    """Options of `random`.

    Raises:
        InputError: as its bases.
    """


@dataclass(frozen=True, kw_only=True)
class ShuffledOptions(RandomOptions):
    """Options of `shuffled`."""

    epoch: int = option(0, "Epoch number, from 0.", ge=0)

    def at_epoch(self, epoch: int, epochs: int | None) -> dict[str, Any]:
        return {"epoch": epoch}


def random(embeddings: data.Data, options: RandomOptions, runtime: Runtime) -> Draft:
    """Plan by a random permutation: the same one in all epochs, or with `ShuffledOptions` another
    one in each. Epoch 0 of `shuffled` has the batches of `random`.

    Args:
        embeddings: N pairs; without a guard only their number matters.
        options: the epoch, the guard, and how to cut batches.
        runtime: the seed.

    Raises:
        InputError: as `guard_of`.
    """
    epoch = options.epoch if isinstance(options, ShuffledOptions) else 0
    stream = (_EPOCH, epoch) if epoch else ()
    rows = runtime.generator(*stream).permutation(embeddings.num_rows)
    # `guard_of` imports torch, which plans without a guard do not need.
    if not options.guard and options.group_column is None and not options.names_ids:
        return Draft(rows=rows)
    separate = guard.guard_of(embeddings, options, runtime)
    known = options.names_ids or separate.apart.spans.size > 0
    return Draft(rows=rows, guard=separate, blind=known and separate.ceilings is None)
