"""Losses of batches in their plainest form, apart from what `batchplan.evaluate` computes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import batchplan

TEMPERATURE, BATCH_SIZE = 0.05, 64


def unit_rows(embeddings: batchplan.Embeddings) -> tuple[Tensor, Tensor]:
    """Both sides, float32 (N, d), of unit length."""
    n = embeddings.num_rows
    sides = (np.asarray(side.rows(0, n), np.float32) for side in (embeddings.x, embeddings.y))
    x, y = (torch.nn.functional.normalize(torch.from_numpy(side), dim=1) for side in sides)
    return x, y


def stacked(plan: batchplan.Plan) -> NDArray[np.int64]:
    """The full batches of a plan (m, B)."""
    size = plan.metadata.batch_size
    full = [batch for batch in plan.batches() if len(batch) == size]
    return np.stack(full).astype(np.int64)


def random_batches(n: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """A random partition into full batches (m, B); the rows left over are dropped."""
    return draw.permutation(n)[: n - n % BATCH_SIZE].reshape(-1, BATCH_SIZE)


def in_batches(x: Tensor, y: Tensor, batches: NDArray[np.int64]) -> tuple[float, float]:
    """Mean NT-Xent loss, and mean softmax probability of the positive, of both directions."""
    index = torch.from_numpy(batches)
    return _summary(x[index] @ y[index].transpose(1, 2))


def against_all(x: Tensor, y: Tensor, rows: int = 1024) -> tuple[float, float]:
    """The same where all rows are one batch (N^2 similarities, ``rows`` of them at a time)."""
    positives = (x * y).sum(1) / TEMPERATURE
    logs = [
        torch.cat([torch.logsumexp(part @ b.T / TEMPERATURE, 1) for part in a.split(rows)])
        for a, b in ((x, y), (y, x))
    ]
    return _means(positives - torch.stack(logs))


def _summary(similarities: Tensor) -> tuple[float, float]:
    logits = similarities / TEMPERATURE
    positives = logits.diagonal(dim1=1, dim2=2)
    return _means(positives - torch.stack([logits.logsumexp(2), logits.logsumexp(1)]))


def _means(log_probability: Tensor) -> tuple[float, float]:
    doubled = log_probability.double()
    return -float(doubled.mean()), float(doubled.exp().mean())
