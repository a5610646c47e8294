"""Random batches: the baselines for every planner.

`random` (the same batches in every epoch) and `shuffled` are the non-adaptive batch selections of
"Mini-Batch Optimization of Contrastive Loss" (2023), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchplan import data, guard
from batchplan.guard.options import GuardOptions
from batchplan.options import LIMITS, option
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.options import PassOptions, PlannerOptions
from batchplan.runtime import Runtime

_EPOCH = 2  # generator stream of epochs after the first


@dataclass(frozen=True, kw_only=True)
class RandomOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `random`.

    Raises:
        InputError: as its bases.
    """

    guard: bool | None = option(  # type: ignore[assignment]
        None,
        "Keep equal rows apart, and rows that a limit or groups part.  [default: where there is "
        "a limit or a group column]",
    )

    def __post_init__(self) -> None:
        if self.guard is None:
            parted = (getattr(self, name) for name in (*LIMITS, "group_column"))
            object.__setattr__(self, "guard", any(value is not None for value in parted))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class ShuffledOptions(RandomOptions):
    """Options of `shuffled`."""

    epoch: int = option(0, "Epoch number, from 0. Each epoch has its own permutation.", ge=0)


def random(embeddings: data.Data, options: RandomOptions, runtime: Runtime) -> Draft:
    """Plan by a uniform permutation drawn from the seed, the same for all epochs.

    Args:
        embeddings: N pairs; without a guard only their number matters.
        options: guard, and how to cut batches.
        runtime: the seed.

    Raises:
        InputError: as `guard_of`.
    """
    return _drawn((), embeddings, options, runtime)


def shuffled(embeddings: data.Data, options: ShuffledOptions, runtime: Runtime) -> Draft:
    """Plan by a permutation drawn from the seed and the epoch; epoch 0 has that of `random`.

    Args:
        embeddings: N pairs; without a guard only their number matters.
        options: the epoch, guard, and how to cut batches.
        runtime: the seed.

    Raises:
        InputError: as `guard_of`.
    """
    stream = (_EPOCH, options.epoch) if options.epoch else ()
    return _drawn(stream, embeddings, options, runtime)


def _drawn(
    stream: tuple[int, ...],
    embeddings: data.Data,
    options: RandomOptions,
    runtime: Runtime,
) -> Draft:
    """The permutation of a generator stream."""
    rows = runtime.generator(*stream).permutation(embeddings.num_rows)
    # The guard loads torch, which plans without one do not wait for.
    parted = options.guard or options.group_column is not None
    if not parted:
        return Draft(rows=rows)
    keep_apart = guard.guard_of(embeddings, options, runtime)
    return Draft(rows=rows, guard=keep_apart)
