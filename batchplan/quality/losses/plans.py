"""Computes the losses of a plan, of all rows, of random plans and of an oracle."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from batchplan.quality.evaluation import Direction
from batchplan.quality.measured import BatchStatistics, GlobalStatistics, Measured
from batchplan.typing import Float64Array

_NOISE_64 = 1e-10  # relative to the largest logit: closer losses are equal
_NOISE_32 = 1e-6  # the same for losses of float32 similarities


def losses(measured: Measured) -> dict[str, Any]:
    """Return the fields of `Evaluation` about losses, including ``directions``."""
    directions = [
        _direction(*statistics, measured)
        for statistics in zip(measured.inside, measured.outside, measured.random, strict=True)
    ]
    both = {
        field.name: float(np.mean([getattr(direction, field.name) for direction in directions]))
        for field in fields(Direction)
    }
    return {
        **both,
        **_against_random(both, measured.random.mean(axis=0), measured.largest_logit),
        "directions": dict(zip(("x_to_y", "y_to_x"), directions, strict=True)),
    }


def standard_errors(measured: Measured, figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the standard errors of the `losses` that are estimates, by name.

    Each estimate depends on one mean over all rows. Its error is the error of this mean times the
    size of the derivative. Without a sample, all errors are 0.
    """

    def error(reached: list[Float64Array]) -> float:
        above = [values - way.positive for values, way in zip(reached, outside, strict=True)]
        return measured.sample.standard_error(np.mean(above, axis=0))

    outside = measured.outside
    gap = error([way.log_sum for way in outside])
    oracle = error([way.oracle for way in outside])
    reach = figures["loss_oracle"] - figures["loss_random"]
    return {
        **dict.fromkeys(("loss_global", "gap", "gap_random"), gap),
        "gap_reduction": gap * quotient(figures["gap_reduction"], figures["gap_random"]),
        "loss_oracle": oracle,
        "oracle_share": oracle * quotient(figures["oracle_share"], reach),
    }


def quotient(share: float, whole: float) -> float:
    """Return the size of the derivative of ``share``, which is part/whole, by the whole."""
    return abs(share / whole) if whole else 0.0


def _direction(
    inside: BatchStatistics,
    outside: GlobalStatistics,
    random: Float64Array,
    measured: Measured,
) -> Direction:
    sample = measured.sample
    entries = inside.losses()
    loss_train = float(entries.mean())
    loss_global = sample.mean(outside.log_sum - outside.positive)
    return Direction(
        loss_train=loss_train,
        loss_global=loss_global,
        loss_random=float(random.mean()),
        loss_oracle=sample.mean(outside.oracle - outside.positive),
        gap=loss_global - loss_train,
        positive_probability=float(np.exp(-entries).mean()),
    )


def _against_random(
    both: dict[str, float], trials: Float64Array, largest_logit: float
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
