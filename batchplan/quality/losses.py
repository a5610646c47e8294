"""The losses of a plan, of all rows, of random plans and of an oracle."""

from dataclasses import fields
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.evaluation import Direction
from batchplan.quality.measured import BatchStatistics, GlobalStatistics, Measured

_NOISE_64 = 1e-10  # relative to the largest logit: closer losses are equal
_NOISE_32 = 1e-6  # likewise, for losses of float32 similarities


def losses(measured: Measured, largest_logit: float) -> dict[str, Any]:
    """The fields of `Evaluation` about losses, ``directions`` included.

    Args:
        measured: the plan and its statistics.
        largest_logit: the largest possible similarity over the temperature, in magnitude.
    """
    sizes = np.diff(measured.plan.batch_offsets)
    directions = [
        _direction(*statistics, sizes)
        for statistics in zip(measured.inside, measured.outside, measured.random, strict=True)
    ]
    both = {
        field.name: float(np.mean([getattr(direction, field.name) for direction in directions]))
        for field in fields(Direction)
    }
    return {
        **both,
        **_against_random(both, measured.random.mean(axis=0), largest_logit),
        "directions": dict(zip(("x_to_y", "y_to_x"), directions, strict=True)),
    }


def _direction(
    inside: BatchStatistics,
    outside: GlobalStatistics,
    random: NDArray[np.float64],
    sizes: NDArray[np.int64],
) -> Direction:
    entries = inside.losses()
    loss_train = float(entries.mean())
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
        positive_probability=float(np.exp(-entries).mean()),
    )


def _against_random(
    both: dict[str, float], trials: NDArray[np.float64], largest_logit: float
) -> dict[str, Any]:
    train, random, oracle = both["loss_train"], both["loss_random"], both["loss_oracle"]
    # Where random plans differ only in the order of their sums, a quotient would be noise.
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
