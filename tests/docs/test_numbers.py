"""Measurements that pages tell without showing a command, made again in plain NumPy."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

import batchplan
from tests.dense import similarities

from .blocks import ROOT

TUTORIAL, PLANNERS = (
    (ROOT / "docs" / f"{name}.md").read_text() for name in ("tutorial", "paper_planners")
)
TEMPERATURE = 0.05


@pytest.fixture(scope="module")
def embeddings():
    return batchplan.load_embeddings(ROOT / "sample_data" / "pairs.parquet")


@pytest.fixture(scope="module")
def logits(embeddings):
    return similarities(embeddings) / TEMPERATURE


def loss(logits, rows, batch_size):
    """The NT-Xent loss of batches cut from ``rows``, the mean of both directions."""
    blocks = np.stack([logits[np.ix_(b, b)] for b in rows.reshape(-1, batch_size)])
    positive = np.diagonal(blocks, axis1=1, axis2=2)
    return float((logsumexp(blocks, 2) / 2 + logsumexp(blocks, 1) / 2 - positive).mean())


@pytest.fixture(scope="module")
def baseline(logits):
    """By batch size: the mean loss of random batches, and the loss against all rows."""
    generator = np.random.default_rng(0)
    everything = loss(logits, np.arange(len(logits)), len(logits))

    @cache
    def of(batch_size):
        orders = (generator.permutation(len(logits)) for _ in range(8))
        return float(np.mean([loss(logits, rows, batch_size) for rows in orders])), everything

    return of


def gap_reduction(logits, baseline, rows, batch_size):
    """The share of the gap of random batches that the plan closes, in percent."""
    random, everything = baseline(batch_size)
    return 100 * (loss(logits, rows, batch_size) - random) / (everything - random)


def test_gap_reduction_by_neighbors(embeddings, logits, baseline):
    numbers, told = re.search(r"`--neighbors` ([\d, ]+): ([\d.%, ]+)\.\n", PLANNERS).groups()
    settings = list(zip(numbers.split(", "), told.replace("%", "").split(", "), strict=True))
    assert len(settings) == 5
    for neighbors, told in settings:
        rows = batchplan.plan(
            embeddings, planner="gcbs", neighbors=int(neighbors), device="cpu"
        ).rows
        assert gap_reduction(logits, baseline, rows, 64) == pytest.approx(float(told), abs=0.3), (
            neighbors
        )


def test_gap_reduction_by_batch_size(embeddings, logits, baseline):
    number = r"([\d.]+)%"
    told = re.search(
        rf"{number} with B = 64, {number} with B = 16, {number} with B = 256", PLANNERS
    )
    for batch_size, percent in zip((64, 16, 256), told.groups(), strict=True):
        rows = batchplan.plan(embeddings, planner="gcbs", batch_size=batch_size, device="cpu").rows
        assert gap_reduction(logits, baseline, rows, batch_size) == pytest.approx(
            float(percent), abs=0.3
        )


def test_losses(baseline):
    told = re.search(
        r"random batches of 64 is ([\d.]+);.*?all 2,048 rows is ([\d.]+);.*?gap.*?is ([\d.]+\d)",
        TUTORIAL,
        re.DOTALL,
    )
    random, everything = baseline(64)
    found = (random, everything, everything - random)
    assert found == pytest.approx([float(part) for part in told.groups()], abs=0.01)
