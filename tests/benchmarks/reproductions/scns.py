"""Semantically-Conditioned Negative Samples (2021): how long uniform draws take to cover the top k.

The formulas of section 3.3 and appendix E, against draws that are really made, on the most similar
rows of real pairs.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.coupons import expected_batches, expected_draws
from tests.benchmarks.quality import load
from tests.benchmarks.reproductions.batches import unit_rows
from tests.benchmarks.reproductions.claims import Claim, Effort, Found

TITLE = "SCNS"
K, DRAWN_FROM, TEMPERATURE = 10, 100, 0.1
BATCH = 64
SMALL, SMALL_BATCH = 40, 8  # M and b of theorem 3, small enough to cover all M
ERRORS = 4  # standard errors within which two means agree


def measure(data: Path, effort: Effort) -> dict[str, Any]:
    """Draws until all were seen, one for each repetition."""
    x, y = unit_rows(load(data))
    draw = np.random.default_rng(0)
    anchors = draw.permutation(len(x))[: effort.anchors]
    similar = (x[anchors] @ y.T).numpy()
    similar[np.arange(len(anchors)), anchors] = -np.inf
    others = len(x) - 1
    top = -np.sort(-similar, axis=1)[:, : min(DRAWN_FROM, others)].astype(np.float64)
    softmax = np.exp((top - top[:, :1]) / TEMPERATURE)
    softmax /= softmax.sum(1, keepdims=True)
    sizes = [others // 8, others // 4, others // 2, others]
    return {
        "others": others,
        "uniform": [draws(K, uniform(others), draw) for _ in anchors],
        "scns": [draws(K, p, draw) for p in softmax],
        "scns, all": [draws(len(p), p, draw) for p in softmax],
        "equation 33": {
            wanted: float(expected_draws(softmax[:, :wanted]).mean())
            for wanted in (K, softmax.shape[1])
        },
        "batches of all": [rounds(SMALL, draw) for _ in range(effort.repeats)],
        "batches of top": [rounds(K, draw) for _ in range(effort.repeats)],
        "by size": {
            n: [-(-draws(K, uniform(n), draw) // (BATCH - 1)) for _ in anchors] for n in sizes
        },
    }


def uniform(n: int) -> NDArray[np.float64]:
    return np.full(n, 1 / n)


def draws(wanted: int, probabilities: NDArray[np.float64], draw: np.random.Generator) -> int:
    """Draws with replacement until the first ``wanted`` of the rows were all drawn."""
    edges = np.cumsum(probabilities)
    edges[-1] = 1.0
    unseen, made, block = np.ones(wanted, bool), 0, 4096
    while True:
        rows = np.searchsorted(edges, draw.random(block), side="right")
        for place in np.flatnonzero(rows < wanted):
            unseen[rows[place]] = False
            if not unseen.any():
                return made + int(place) + 1
        made += block


def rounds(wanted: int, draw: np.random.Generator) -> int:
    """Batches of `SMALL_BATCH` of `SMALL` rows, drawn with replacement, until all were seen."""
    return -(-draws(wanted, uniform(SMALL), draw) // SMALL_BATCH)


def theorem_3(rows: int, batch: int) -> float:
    """Equation 17 as it is printed: the rows are M, and k does not occur in it."""
    return math.fsum(
        (-1) ** (rows - j + 1) * math.comb(rows, j) / (1 - (j / rows) ** batch) for j in range(rows)
    )


def error(sample: list[int]) -> float:
    return statistics.stdev(sample) / math.sqrt(len(sample))


def agrees(sample: list[int], expected: float) -> bool:
    return abs(statistics.mean(sample) - expected) <= ERRORS * error(sample)


def told(sample: list[int]) -> str:
    return f"{statistics.mean(sample):,.1f} ± {error(sample):,.1f}"


def equation_16(found: dict[str, Any]) -> Found:
    expected = expected_batches(K, found["others"], 1)
    return Found(
        f"{told(found['uniform'])} draws ({len(found['uniform'])} anchors), formula "
        f"{expected:,.1f}; M = {found['others']:,}, k = {K}",
        [agrees(found["uniform"], expected)],
    )


def equation_17(found: dict[str, Any]) -> Found:
    printed, ours = (
        theorem_3(SMALL, SMALL_BATCH),
        expected_batches(K, SMALL, SMALL_BATCH),
    )
    return Found(
        f"M = {SMALL}, b = {SMALL_BATCH}: formula {printed:.2f}; drawn "
        f"{told(found['batches of all'])} until all M are seen, {told(found['batches of top'])} "
        f"for the top {K} (batchplan computes {ours:.2f})",
        [agrees(found["batches of all"], printed), agrees(found["batches of top"], printed)],
    )


def larger(found: dict[str, Any]) -> Found:
    means = {n: statistics.mean(sample) for n, sample in found["by size"].items()}
    expected = [expected_batches(K, n, BATCH - 1) for n in means]
    shown = ", ".join(f"{n:,}: {mean:,.1f}" for n, mean in means.items())
    return Found(
        f"batches of {BATCH} until the top {K} are seen, by M: {shown}",
        [list(means.values()) == sorted(means.values()), expected == sorted(expected)],
    )


def fewer(found: dict[str, Any]) -> Found:
    scns, plain = (statistics.mean(found[name]) for name in ("scns", "uniform"))
    return Found(
        f"{told(found['scns'])} draws from the softmax (τ = {TEMPERATURE}) of the {DRAWN_FROM} "
        f"most similar rows, by equation 33 {found['equation 33'][K]:,.1f}: {plain / scns:,.0f} "
        "times fewer",
        [scns < plain, agrees(found["scns"], found["equation 33"][K])],
    )


def unequal(found: dict[str, Any]) -> Found:
    even = expected_batches(DRAWN_FROM, DRAWN_FROM, 1)
    return Found(
        f"all {DRAWN_FROM}: {told(found['scns, all'])} draws from the softmax, {even:,.1f} from "
        "equal probabilities",
        [statistics.mean(found["scns, all"]) - ERRORS * error(found["scns, all"]) > even],
    )


CLAIMS = [
    Claim(
        "Equation 16",
        "uniform draws see the top k of M rows after M(1 + 1/2 + … + 1/k) draws on average",
        equation_16,
    ),
    Claim(
        "Theorem 3, equation 17",
        "the expected number of batches of b draws until the top k were seen",
        equation_17,
    ),
    Claim("Section 3.3", "the larger M, the more batches it takes", larger),
    Claim("Appendix E.2", "SCNS draws see the top k sooner than uniform ones", fewer),
    Claim(
        "Appendix E.2",
        "unequal probabilities need more draws than equal ones to see all rows drawn from",
        unequal,
    ),
]
