"""The models, how they are trained on batches of row numbers, and how they are judged.

All of them are two towers. Vectors have unit length, the loss is NT-Xent in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from tests.benchmarks.training.tokens import BUCKETS

TEMPERATURE = 0.05
Record = Callable[[NDArray[np.int64], Tensor, Tensor], None]
_ROWS_AT_ONCE = 1024


class Bags(nn.Module):
    """Mean vectors of tokens from one table: docstring and code share most of their words."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(BUCKETS, dim, mode="mean", padding_idx=0)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return normalize(self.table(x), dim=1), normalize(self.table(y), dim=1)


class Heads(nn.Module):
    """What is trained on top of frozen vectors: x + F x, with an own F on either side that is 0 at
    first, so that training starts from the frozen vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(2))
        for tower in self.towers:
            nn.init.zeros_(tower.weight)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        f, g = self.towers
        return normalize(x + f(x), dim=1), normalize(y + g(y), dim=1)


class Training:
    """A model, its optimizer and its rows; the learning rate falls in a line to nearly nothing."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, *, steps: int, rate: float) -> None:
        self.model, self.x, self.y = model, x, y
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1, 0.01, steps)

    def epoch(self, batches: Iterable[list[int]], record: Record | None = None) -> float:
        """Train on each batch once; the mean of their losses.

        Args:
            record: called with the rows of every step and their vectors.
        """
        losses = []
        for batch in batches:
            x, y = self.model(self.x[batch], self.y[batch])
            if record:
                record(np.array(batch), x, y)
            loss = _loss(x, y)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def kept(self, batch: list[int]) -> int:
        """Bytes of what a step on a batch keeps for its backward pass, without the weights."""
        weights = {weight.untyped_storage().data_ptr() for weight in self.model.parameters()}
        sizes: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = _loss(*self.model(self.x[batch], self.y[batch]))  # holds them until it goes
        del loss
        return sum(sizes.values())


def _loss(x: Tensor, y: Tensor) -> Tensor:
    logits, target = x @ y.T / TEMPERATURE, torch.arange(len(x))
    return (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2


@torch.no_grad()
def embed(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides of all rows."""
    starts = range(0, len(x), _ROWS_AT_ONCE)
    parts = [model(x[i : i + _ROWS_AT_ONCE], y[i : i + _ROWS_AT_ONCE]) for i in starts]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def reciprocal_rank(x: Tensor, y: Tensor) -> float:
    """Mean over the rows of 1 / the rank of y_i for x_i among all y; ties count against it."""
    ranks = []
    for start in range(0, len(x), _ROWS_AT_ONCE):
        scores = x[start : start + _ROWS_AT_ONCE] @ y.T
        own = scores.diagonal(start)
        ranks.append((scores >= own[:, None]).sum(1))
    return float(torch.cat(ranks).double().reciprocal().mean())
