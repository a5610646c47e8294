"""Vectors from a table of tokens, against the formulas."""

import numpy as np
import pyarrow as pa
import pytest

from batchplan.embedding.table import TokenTable

ROWS, TOKENS, DIM = 300, 80, 12


def lists(draw, low=3, high=12):
    """Texts of tokens, frequent ones more often."""
    return [
        np.minimum(draw.geometric(0.05, draw.integers(low, high)), TOKENS).tolist()
        for _ in range(ROWS)
    ]


def table(sides, vectors):
    kind = pa.large_list(pa.int32())
    return TokenTable([pa.array(side, kind) for side in sides], vectors)


def by_formula(sides, vectors):
    """Arora et al., algorithm 1, with the mean of the weights, and of all texts."""
    every = np.concatenate([np.array(text) for side in sides for text in side])
    weight = 1e-3 / (1e-3 + np.bincount(every, minlength=len(vectors)) / len(every))
    found = [np.average(vectors[text], 0, weight[text]) for side in sides for text in side]
    found = np.array(found) - np.mean(found, 0)
    first = np.linalg.svd(found)[2][0]
    return np.split(found - np.outer(found @ first, first), len(sides))


def cosine(a, b):
    a, b = (np.asarray(v, float) for v in (a, b))
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_a_text_gets_the_weighted_mean_of_its_tokens():
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((TOKENS + 20, DIM)) + 1  # 20 tokens are in no text
    sides = [lists(draw), lists(draw)]
    rows = draw.permutation(ROWS)[:50]
    for found, expected in zip(
        table(sides, vectors).embed(rows), by_formula(sides, vectors), strict=True
    ):
        np.testing.assert_allclose(found, expected[rows], rtol=0.01, atol=1e-3)


def test_a_text_without_tokens_has_a_direction():
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((TOKENS + 1, DIM))
    sides = [lists(draw), [[], *lists(draw)[1:]]]
    made = table(sides, vectors)
    assert all(side.any(1).all() for side in made.embed(np.arange(ROWS)))
    known = [draw.standard_normal((ROWS, DIM)) for _ in sides]
    predicted = made.predict(np.arange(1, ROWS), known, np.array([0]))
    assert all(np.isfinite(side).all() and side.any(1).all() for side in predicted)


@pytest.mark.parametrize("kind", ["mapped", "own"])
def test_vectors_of_a_model_are_predicted(kind):
    """A model whose vectors are means of token vectors: a linear map of the table, or others."""
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((TOKENS + 1, DIM))
    sides = [lists(draw, 20, 40), lists(draw, 20, 40)]
    learned = draw.standard_normal((TOKENS + 1, 2 * DIM))
    if kind == "mapped":
        learned = vectors @ draw.standard_normal((DIM, 2 * DIM))
    true = [np.array([learned[text].mean(0) for text in side]) for side in sides]
    known = [np.where(np.arange(ROWS)[:, None] < 200, side, np.nan) for side in true]
    made = table(sides, vectors)
    wanted = np.arange(200, ROWS)
    predicted = made.predict(np.arange(200), known, wanted)
    for side, expected in zip(predicted, true, strict=True):
        assert side.shape == (100, 2 * DIM)
        assert cosine(side, expected[wanted]).mean() > {"mapped": 0.9, "own": 0.75}[kind]
        centred = cosine(side - side.mean(0), expected[wanted] - expected[wanted].mean(0))
        assert centred.mean() > {"mapped": 0.8, "own": 0.6}[kind]


def test_each_row_is_predicted_alone():
    """Whatever else is asked for, and in whichever order."""
    draw = np.random.default_rng(0)
    sides = [lists(draw), lists(draw)]
    made = table(sides, draw.standard_normal((TOKENS + 1, DIM)))
    known, rows = [draw.standard_normal((ROWS, DIM)) for _ in sides], np.arange(0, ROWS, 2)
    wanted = np.arange(1, ROWS, 2)
    whole, few = made.predict(rows, known, wanted), made.predict(rows, known, wanted[::-7])
    for all_of, some in zip(whole, few, strict=True):
        np.testing.assert_array_equal(all_of[::-7], some)
