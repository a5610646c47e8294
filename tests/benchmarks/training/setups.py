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
from tests.benchmarks.training.tokens import tokens

BATCH_SIZE = 64
HELD_OUT = 5000  # candidates
_LENGTHS = {"docstring": 96, "code": 192}  # tokens; most texts have fewer
_OTHER_ROWS = 12_000  # that something was trained on before
_DIM, _RATE = 128, 0.1  # of vectors of tokens
_FROZEN_DIM = 256


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
    epochs: int
    rate: float


def setup(name: str, rows: int) -> Setup:
    """The set-up of a name, with so many rows to train on."""
    return SETUPS[name](rows)


def pretrained(rows: int) -> Setup:
    """Vectors of tokens that batches of other rows have trained go on being trained."""
    held_out, train, other = _parts(HELD_OUT, rows, _OTHER_ROWS)
    model = _encoder(other, _DIM)
    return Setup(train, held_out, lambda: copy.deepcopy(model), epochs=5, rate=_RATE / 4)


def frozen(rows: int) -> Setup:
    """Linear heads on such vectors, which stay as they are."""
    held_out, train, other = _parts(HELD_OUT, rows, _OTHER_ROWS)
    model = _encoder(other, _FROZEN_DIM)
    train, held_out = (
        Part(*embed(model, part.x, part.y), part.labels) for part in (train, held_out)
    )
    return Setup(train, held_out, lambda: Heads(_FROZEN_DIM), epochs=5, rate=1e-3)


def scratch(rows: int) -> Setup:
    """Vectors of tokens, trained from nothing."""
    held_out, train = _parts(HELD_OUT, rows)
    return Setup(train, held_out, lambda: Bags(_DIM), epochs=8, rate=_RATE)


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
