"""Computes the losses of a plan, of all rows, of random plans and of an oracle."""

from typing import Any

import numpy as np

from batchplan.quality.measured import BatchStatistics, GlobalStatistics, Measured
from batchplan.typing import Float64Array

_NOISE_64 = 1e-10  # relative to the largest logit: closer losses are equal
_NOISE_32 = 1e-6  # the same for losses of float32 similarities


def losses(measured: Measured) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the fields of `Evaluation` about losses, and the standard errors of the estimates."""
    figures, errors = loss_figures(measured, "log_sum", measured.random.losses)
    train, random = figures["loss_train"], figures["loss_random"]
    # If random plans differ only in the order of their sums, a quotient would be noise.
    tiny = _NOISE_64 * max(1.0, measured.largest_logit)
    std = float(measured.random.losses.mean(axis=0).std(ddof=1))
    std = std if std > tiny else 0.0
    equal = abs(train - random) <= tiny
    oracles = _above(measured.outside, "oracle")
    oracle, error = measured.sample.mean(oracles), measured.sample.standard_error(oracles)
    share, share_error = _share(measured, train - random, oracle - random, error)
    figures |= {
        "loss_random_std": std,
        "random_z": (train - random) / std if std else 0.0 if equal else None,
        "gap_random": figures["loss_global"] - random,
        "loss_oracle": oracle,
        "oracle_share": share,
        "positive_probability": float(np.mean([np.exp(-way.losses()) for way in measured.inside])),
    }
    return figures, {
        **errors,
        "gap_random": errors["gap"],
        "loss_oracle": error,
        "oracle_share": share_error,
    }


def loss_figures(
    measured: Measured, name: str, random: Float64Array
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the losses and gaps over some pairs, and the standard errors of the estimates.

    Each estimate depends on one mean over all rows. Its error is the error of this mean times the
    size of the derivative. Without a sample, all errors are 0.

    Args:
        name: ``log_sum`` for all pairs, ``allowed`` for those that the guard allows.
        random: float64 (2, trials), the losses of random plans over these pairs.
    """
    everything = _above(measured.outside, name)
    loss_global = measured.sample.mean(everything)
    error = measured.sample.standard_error(everything)
    train, loss_random = float(_above(measured.inside, name).mean()), float(random.mean())
    reduction, reduction_error = _share(
        measured, train - loss_random, loss_global - loss_random, error
    )
    figures = {
        "loss_train": train,
        "loss_global": loss_global,
        "loss_random": loss_random,
        "gap": loss_global - train,
        "gap_reduction": reduction,
    }
    return figures, {"loss_global": error, "gap": error, "gap_reduction": reduction_error}


def _above(
    ways: tuple[BatchStatistics, BatchStatistics] | tuple[GlobalStatistics, GlobalStatistics],
    name: str,
) -> Float64Array:
    """Return a log-sum-exp of each row less the logit of its positive, means of both directions."""
    above: Float64Array = np.mean([getattr(way, name) - way.positive for way in ways], axis=0)
    return above


def _share(measured: Measured, part: float, whole: float, error: float) -> tuple[float, float]:
    """Return part/whole and its standard error, from the error of ``whole``; 0 if there is no way
    to go, as if a batch has all rows."""
    share = part / whole if abs(whole) > _NOISE_32 * measured.largest_logit else 0.0
    return share, error * abs(share / whole) if whole else 0.0
