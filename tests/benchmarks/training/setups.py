"""What is trained: vectors of tokens, trained before or not, or heads on such vectors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from tests.benchmarks.training.models import Bags, Heads, Training, embed
from tests.benchmarks.training.pairs import pairs
from tests.benchmarks.training.plans import BATCH_SIZE
from tests.benchmarks.training.tokens import tokens

_LENGTHS = {"docstring": 96, "code": 192}  # tokens; most texts have fewer
_RATE = 0.1  # of what is trained before


@dataclass(frozen=True)
class Size:
    """How much there is to do.

    Attributes:
        rows: to train on.
        epochs, rate: how often, and the learning rate at first, which suits shuffled batches.
        dim: of the vectors.
        held_out: candidates.
        other_rows: that something was trained on before.
    """

    rows: int
    epochs: int
    rate: float
    dim: int = 128
    held_out: int = 5000
    other_rows: int = 12_000


FULL = {
    "pretrained": Size(17_500, 5, 0.025),
    "frozen": Size(17_500, 5, 0.001, dim=256),
    "scratch": Size(17_500, 8, 0.1),
}
SMALL = {  # a run takes seconds
    "pretrained": Size(6000, 4, 0.025, 64, 2000, 6000),
    "frozen": Size(9000, 3, 0.002, 128, 2000, 6000),
    "scratch": Size(6000, 6, 0.1, 64, 2000),
}


@dataclass(frozen=True)
class Part:
    """Rows: what the model reads of either side, and their labels."""

    x: Tensor
    y: Tensor
    labels: pa.Table


@dataclass(frozen=True)
class Setup:
    """Rows to train on, rows to judge by, and what makes a model of a seed."""

    train: Part
    held_out: Part
    model: Callable[[], nn.Module]


def pretrained(size: Size) -> Setup:
    """Vectors of tokens that batches of other rows have trained go on being trained."""
    held_out, train, other = _parts(size.held_out, size.rows, size.other_rows)
    model = _encoder(other, size.dim)
    return Setup(train, held_out, lambda: copy.deepcopy(model))


def frozen(size: Size) -> Setup:
    """Linear heads on such vectors, which stay as they are."""
    held_out, train, other = _parts(size.held_out, size.rows, size.other_rows)
    model = _encoder(other, size.dim)
    train, held_out = (
        Part(*embed(model, part.x, part.y), part.labels) for part in (train, held_out)
    )
    return Setup(train, held_out, lambda: Heads(size.dim))


def scratch(size: Size) -> Setup:
    """Vectors of tokens, trained from nothing."""
    held_out, train = _parts(size.held_out, size.rows)
    return Setup(train, held_out, lambda: Bags(size.dim))


SETUPS = {"pretrained": pretrained, "frozen": frozen, "scratch": scratch}


def _encoder(rows: Part, dim: int) -> Bags:
    """Vectors of tokens, trained on shuffled batches."""
    torch.manual_seed(0)
    model, epochs = Bags(dim), 3
    steps = epochs * -(-len(rows.x) // BATCH_SIZE)
    draw = np.random.default_rng(0)
    training = Training(model, rows.x, rows.y, steps=steps, rate=_RATE)
    for _ in range(epochs):
        order = draw.permutation(len(rows.x)).tolist()
        training.epoch(order[i : i + BATCH_SIZE] for i in range(0, len(order), BATCH_SIZE))
    return model


def _parts(*sizes: int) -> list[Part]:
    """Disjoint parts of the pairs; the last ones are smaller where there are too few."""
    table, parts, start = pairs(), [], 0
    for size in sizes:
        rows = table.slice(start, size)
        x, y = (tokens(rows[name].to_pylist(), most) for name, most in _LENGTHS.items())
        parts.append(Part(x, y, rows.select(["group", "source"])))
        start += size
    return parts
