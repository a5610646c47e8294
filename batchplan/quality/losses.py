"""The losses of a plan beside those of all rows, of random plans and of an oracle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.evaluation import Direction
from batchplan.quality.globalpass import GlobalStatistics
from batchplan.quality.inbatch import BatchStatistics

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_NOISE_64 = 1e-10  # relative: float64 losses closer than this are equal
_NOISE_32 = 1e-6  # relative to the largest logit: losses of float32 similarities, likewise


def direction(
    inside: BatchStatistics, outside: GlobalStatistics, random: Float64Array, sizes: Int64Array
) -> Direction:
    """One direction, from what its entries see.

    Args:
        inside: of each entry of the plan, in its batch.
        outside: of each row of the data, among all rows.
        random: float64 (trials,), the mean losses of random plans.
        sizes: int64 (batches,), rows of each batch of the plan.
    """
    losses = inside.losses()
    loss_train = float(losses.mean())
    loss_global = float((outside.log_sum - outside.positive).mean())
    # Lemma 3.3, and lemmas 3.4 and 3.5. Each entry has the size of its own batch, so that the
    # bounds hold for any plan; for a partition they are those of theorems 3.6 and 3.7.
    most = float((outside.peak - outside.positive).mean()) + log(len(outside.peak))
    log_sizes = float((sizes * np.log(sizes)).sum() / sizes.sum())
    least_36 = float((inside.floor - inside.positive).mean()) + log_sizes
    least_37 = float((inside.peak - inside.positive).mean())
    return Direction(
        loss_train=loss_train,
        loss_global=loss_global,
        loss_random=float(random.mean()),
        loss_oracle=float((outside.oracle - outside.positive).mean()),
        gap=loss_global - loss_train,
        bound_36=most - least_36,
        bound_37=most - least_37,
        positive_probability=float(np.exp(-losses).mean()),
    )


def both_directions(directions: Iterable[Direction]) -> dict[str, float]:
    """Each field of the directions, averaged."""
    given = list(directions)
    return {
        field.name: float(np.mean([getattr(one, field.name) for one in given]))
        for field in fields(Direction)
    }


def against_random(
    both: dict[str, float], trials: Float64Array, largest_logit: float
) -> dict[str, Any]:
    """The fields of `Evaluation` that set the plan against ``trials``, the losses of random plans.

    Args:
        both: the plan's losses, by name.
        trials: float64 (trials,).
        largest_logit: the largest possible similarity over the temperature, in magnitude.
    """
    train, random, oracle = both["loss_train"], both["loss_random"], both["loss_oracle"]
    # Where random plans differ only in the order of their sums, a quotient would be of noise.
    tiny = _NOISE_64 * max(1.0, largest_logit)
    std = float(trials.std(ddof=1))
    std = std if std > tiny else 0.0
    equal = abs(train - random) <= tiny
    z = (train - random) / std if std else 0.0 if equal else None
    noise = _NOISE_32 * largest_logit
    gap_random = both["loss_global"] - random
    reach = oracle - random
    return {
        "loss_random_std": std,
        "random_z": z,
        "gap_random": gap_random,
        "gap_reduction": 1 - both["gap"] / gap_random if abs(gap_random) > noise else 0.0,
        "oracle_share": (train - random) / reach if abs(reach) > noise else 1.0,
    }
