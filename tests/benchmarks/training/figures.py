"""What can be told of a plan by its embeddings alone, and might predict how much a model learns."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from batchplan import Embeddings, Plan, evaluate
from tests.benchmarks.training.models import TEMPERATURE

MARGINS = (0.0, 0.05, 0.1, 0.2)  # relative ones of the guards
_NEAREST = 16  # rows of its batch that a row learns most from
_SAMPLE, _RANDOM = 512, 4  # rows and random plans: their errors are far below what plans differ by


class Met:
    """Which rows shared a batch so far."""

    def __init__(self, num_rows: int) -> None:
        self._pairs: NDArray[np.bool_] = np.zeros((num_rows, num_rows), dtype=bool)

    def add(self, batches: NDArray[np.int64], likeness: Tensor) -> float:
        """The share of the nearest rows in each row's batch that it never met before."""
        nearest = likeness.topk(min(_NEAREST, batches.shape[1] - 1), dim=2).indices.numpy()
        columns = np.take_along_axis(batches[:, None], nearest, axis=2)
        new = ~self._pairs[batches[:, :, None], columns]
        self._pairs[batches[:, :, None], batches[:, None]] = True
        return float(new.mean())


def figures(plan: Plan, x: Tensor, y: Tensor, met: Met, *, whole: bool = True) -> dict[str, float]:
    """By name; a margin follows "@". The gap reductions, which cost most, are there if `whole`;
    all others are of the full batches."""
    size = plan.batch_size
    batches = plan.rows[: len(plan.rows) // size * size].reshape(-1, size)
    rows = torch.from_numpy(batches.copy())
    own, other = x[rows].double(), y[rows].double()
    scores = own @ other.mT
    positive = scores.diagonal(dim1=1, dim2=2).clone()
    likeness = scores.maximum(scores.mT)
    likeness.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    found = {"new": met.add(batches, likeness), "1 - p": 1 - _sure(scores)}
    pushes = _pushes(scores)
    embeddings = Embeddings.from_arrays(x.half().numpy(), y.half().numpy())
    for margin in MARGINS:
        ceiling = positive - positive.abs() * margin
        false = likeness >= ceiling[:, :, None].minimum(ceiling[:, None])
        found[f"1 - p @{margin}"] = 1 - _sure(scores.masked_fill(false, -torch.inf))
        found[f"false negatives @{margin}"] = float(false.double().mean())
        found[f"false push @{margin}"] = float((pushes * false).sum((1, 2)).mean() / size)
        found[f"true push @{margin}"] = found["1 - p"] - found[f"false push @{margin}"]
        if not whole:
            continue
        report = evaluate(
            plan, embeddings, temperature=TEMPERATURE, relative_margin=margin,
            sample=_SAMPLE, random_trials=_RANDOM,
        )  # fmt: skip
        assert report.guard is not None
        found["gap reduction"] = report.gap_reduction
        found[f"guarded gap reduction @{margin}"] = report.guard.hardness
    return found


def _pushes(scores: Tensor) -> Tensor:
    """How hard the loss pushes the rows of each pair apart: the probability of the negative, the
    mean of both directions; it has no meaning on the diagonal."""
    logits = scores / TEMPERATURE
    return (logits.softmax(1) + logits.softmax(2)) / 2


def _sure(scores: Tensor) -> float:
    """The mean probability of the positive in its batch."""
    logits = scores / TEMPERATURE
    return float(sum(logits.softmax(axis).diagonal(dim1=1, dim2=2).mean() for axis in (1, 2)) / 2)
