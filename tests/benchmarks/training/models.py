"""The models, how they are trained on batches of row numbers, and how they are judged.

All of them are two towers. Vectors have unit length, the loss is NT-Xent in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from tests.benchmarks.training.tokens import BUCKETS

TEMPERATURE = 0.05
_ROWS_AT_ONCE = 1024


class Bags(nn.Module):
    """Mean vectors of tokens from one table: docstring and code share most of their words."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(BUCKETS, dim, mode="mean", padding_idx=0)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return normalize(self.table(x), dim=1), normalize(self.table(y), dim=1)


class Lexical:
    """Frozen vectors: rare tokens weigh more (TF-IDF), and the main directions of the rest stay."""

    def __init__(self, texts: Sequence[Tensor], dim: int) -> None:
        torch.manual_seed(0)
        seen = torch.stack([_counts(part).sum(0).to_dense() for part in texts]).sum(0)
        self.weights = torch.log((1 + sum(map(len, texts))) / (1 + seen))
        weighed = torch.cat([self._weighed(part) for part in texts])
        _, _, self.directions = torch.svd_lowrank(weighed, q=dim, niter=3)

    def __call__(self, text: Tensor) -> Tensor:
        return normalize(self._weighed(text) @ self.directions, dim=1)

    def _weighed(self, text: Tensor) -> Tensor:
        """Sparse rows of unit length."""
        rows, columns = _counts(text).indices()
        values = self.weights[columns]
        length = torch.zeros(len(text)).index_add(0, rows, values**2).sqrt()
        values = values / length.clamp(min=1e-6)[rows]
        return torch.sparse_coo_tensor(
            torch.stack([rows, columns]), values, (len(text), BUCKETS), check_invariants=False
        )


def _counts(text: Tensor) -> Tensor:
    rows, places = text.nonzero(as_tuple=True)
    where = torch.stack([rows, text[rows, places]])
    return torch.sparse_coo_tensor(
        where, torch.ones(len(rows)), (len(text), BUCKETS), check_invariants=False
    ).coalesce()


class Heads(nn.Module):
    """What is trained on top of frozen vectors: x + f(x), with an own f on either side."""

    def __init__(self, dim: int, hidden: int = 512) -> None:
        super().__init__()
        self.towers = nn.ModuleList(_head(dim, hidden) for _ in range(2))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        f, g = self.towers
        return normalize(x + f(x), dim=1), normalize(y + g(y), dim=1)


def _head(dim: int, hidden: int) -> nn.Module:
    """A function that is 0 at first, so that training starts from the frozen vectors."""
    last = nn.Linear(hidden, dim)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), last)


class Training:
    """A model, its optimizer and its rows; the learning rate falls in a line to nearly nothing."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, *, steps: int, rate: float) -> None:
        self.model, self.x, self.y = model, x, y
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1, 0.01, steps)

    def epoch(self, batches: Iterable[list[int]]) -> float:
        """Train on each batch once; the mean of their losses."""
        losses = []
        for batch in batches:
            x, y = self.model(self.x[batch], self.y[batch])
            logits, target = x @ y.T / TEMPERATURE, torch.arange(len(batch))
            loss = (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)


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
