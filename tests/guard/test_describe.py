"""What `inspect` says of duplicates and guards, against dense float64."""

import json

import numpy as np
import pytest

from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.guard import describe as description
from batchplan.guard.describe import (
    ABSOLUTE_MARGINS,
    RELATIVE_MARGINS,
    SCORE_PERCENTS,
    describe,
    sampled_rows,
)
from batchplan.quality import EvaluationOptions
from batchplan.quality.pairs import beaten_positives
from batchplan.runtime import Runtime

PERCENTS = (1, 5, 25, 50, 75, 95, 99)


def pairs(n=60, paired=True, dtype=np.float32, opposed=False):
    """Rows in clusters, some of them equal, and with ``opposed`` some positives below zero."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((6, 10))[rng.integers(0, 6, n)] + 0.5 * rng.standard_normal((n, 10))
    y = x + 0.5 * rng.standard_normal((n, 10))
    y[: n // 5 if opposed else 0] *= -1
    x[1], x[8], y[2], y[3] = x[0], x[0], y[5], -0.0
    y[3, 0] = 1.0
    return Embeddings.from_arrays(x.astype(dtype), y.astype(dtype) if paired else None)


def scores(positive):
    """Two digits of percentiles."""
    return [float(f"{score:.2g}") for score in np.percentile(positive, SCORE_PERCENTS)]


def expected(embeddings, similarity, sample):
    """(kept away by each guard, hardest) of sampled rows, by loops over all pairs."""
    x, y = (side.rows(0, len(side)).astype(np.float64) for side in (embeddings.x, embeddings.y))
    stored = x, y
    if similarity == "cosine":
        x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    S = x @ y.T
    p = np.diagonal(S)
    q = np.maximum(p, sorted(p)[(len(p) - 1) // 2])
    ceilings = [q - np.abs(q) * margin for margin in RELATIVE_MARGINS]
    ceilings += [q - margin for margin in ABSOLUTE_MARGINS]
    ceilings += [np.full_like(p, score) for score in scores(p)]
    kept, hardest = np.zeros((len(ceilings), len(sample)), int), []
    for k, i in enumerate(sample):
        others = [j for j in range(len(S)) if j != i]
        hardest.append(max(max(S[i, j], S[j, i]) for j in others))
        for j in others:
            equal = any((side[i] == side[j]).all() for side in stored)
            for row, c in enumerate(ceilings):
                kept[row, k] += equal or max(S[i, j], S[j, i]) >= min(c[i], c[j])
    return kept, np.array(hardest), p[sample]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("opposed", [True, False])
def test_guards_by_brute_force(similarity, paired, opposed, monkeypatch):
    monkeypatch.setattr(description, "_COLUMNS", 7)
    embeddings = pairs(paired=paired, opposed=opposed)
    found = describe(embeddings, Runtime(), similarity=similarity)
    kept, hardest, positive = expected(embeddings, similarity, np.arange(60))
    limits = [(margin, None, None) for margin in RELATIVE_MARGINS]
    limits += [(None, margin, None) for margin in ABSOLUTE_MARGINS]
    limits += [(None, None, score) for score in scores(positive)]
    assert [
        (one.relative_margin, one.absolute_margin, one.max_score) for one in found.guards
    ] == limits
    assert [one.kept_away for one in found.guards] == pytest.approx(kept.mean(axis=1))
    assert [one.rows_affected for one in found.guards] == pytest.approx((kept > 0).mean(axis=1))
    above = positive > 0
    ratios = np.percentile(hardest[above] / positive[above], PERCENTS)
    assert list(found.hardest_to_positive) == [str(percent) for percent in PERCENTS]
    assert list(found.hardest_to_positive.values()) == pytest.approx(ratios, rel=1e-5)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_duplicates_are_counted_on_each_side(dtype):
    assert describe(pairs(dtype=dtype), Runtime()).duplicates == {"x": 3, "y": 2}
    assert describe(pairs(paired=False, dtype=dtype), Runtime()).duplicates == {"x": 3, "y": 3}


def test_a_sample_is_drawn_by_the_seed(monkeypatch):
    monkeypatch.setattr(description, "_SAMPLED", 20)
    embeddings = pairs(80)
    found = [describe(embeddings, Runtime(seed=seed)).guards for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_samples_shrink_where_rows_are_many():
    generator = np.random.default_rng(0)
    sizes = {n: len(sampled_rows(generator, n)) for n in (5, 1024, 200_000, 1 << 20, 10_000_000)}
    assert list(sizes.values()) == [5, 1024, 671, 128, 64]
    rows = sampled_rows(generator, 3000)
    assert len(np.unique(rows)) == 1024
    assert rows.tolist() == sorted(rows)


def test_no_positive_above_zero_has_no_ratio():
    x = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    assert describe(Embeddings.from_arrays(x, -x), Runtime()).hardest_to_positive == {}


def test_equal_rows_are_kept_apart_by_every_guard():
    x = np.ones((12, 3), np.float32)
    found = describe(Embeddings.from_arrays(x, -x), Runtime())
    assert {(one.kept_away, one.rows_affected) for one in found.guards} == {(11.0, 1.0)}


def test_products_beyond_float32():
    x, y = np.ones((2, 30, 2), np.float32)
    x[0] = y[7] = 1e20
    assert describe(Embeddings.from_arrays(x, y), Runtime()).length_x["max"] > 1e20
    with pytest.raises(InputError, match=r"x array row 0.* float32 .* overflows"):
        describe(Embeddings.from_arrays(x, y), Runtime(), similarity="dot")


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_an_equal_positive_beats_none(similarity):
    """Texts with few classes have the same positive in many rows, whose similarity differs by the
    order of its sum."""
    rng = np.random.default_rng(0)
    labels = np.arange(96) % 6
    y = 10 * rng.standard_normal((6, 48)).astype(np.float32)[labels]
    x = y + rng.standard_normal(y.shape).astype(np.float32)
    embeddings, runtime = Embeddings.from_arrays(x, y), Runtime(device="cpu")
    assert describe(embeddings, runtime, similarity=similarity).beaten_positives == 0
    assert beaten_positives(embeddings, EvaluationOptions(similarity=similarity), runtime) == 0
