"""The proximity graph against subsets that plain Python draws from the same counters."""

import numpy as np
import pytest

import batchplan
from batchplan.errors import InputError, ResourceError
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.planners.papers.rwr import proximity
from batchplan.planners.papers.rwr.counter_random import below, unit
from batchplan.planners.papers.rwr.proximity import draw_candidates, proximity_graph
from batchplan.runtime import Runtime

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
CPU = Runtime(device="cpu")


def mix(word):
    """SplitMix64 in Python's own integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def stream_of(key, index):
    return mix(key ^ mix((index + GOLDEN) & MASK))


def unit_of(own, counter):
    return (mix((own + counter * GOLDEN) & MASK) >> 11) / 2**53


def candidates_of(key, row, n, m):
    """Floyd's sampler with a Python set."""
    own, drawn = stream_of(key, row), set()
    for t in range(m):
        last = n - 1 - m + t
        pick = int(unit_of(own, t) * (last + 1))
        drawn.add(last if pick in drawn else pick)
    return sorted(value + (value >= row) for value in drawn)


def key_of(runtime):
    return int(runtime.generator(2).integers(2**64, dtype=np.uint64))


def draw(key, row, n, m):
    drawn, table = np.empty(m, np.int64), np.empty(1 << (2 * m).bit_length(), np.int64)
    draw_candidates(np.uint64(key), row, n, drawn, table)
    return drawn


def rows_of(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    if kind == "ties":  # whole numbers: products are exact in any order of summation
        return rng.integers(-1, 2, (n, d)).astype(np.float32)
    return rng.standard_normal((n, d)).astype(kind)


def test_draws_are_those_of_plain_integers():
    for key in (0, 1, MASK, 0x123456789ABCDEF):
        own = np.uint64(key)
        assert [unit(own, t) for t in range(50)] == [unit_of(key, t) for t in range(50)]
        assert [below(own, t, 7) for t in range(50)] == [
            int(unit_of(key, t) * 7) for t in range(50)
        ]


@pytest.mark.parametrize(("n", "m"), [(2, 1), (3, 1), (40, 38), (40, 7), (5000, 300)])
def test_candidates_are_distinct_and_not_the_row(n, m):
    for row in {0, 1, n // 2, n - 1}:
        drawn = draw(77, row, n, m)
        assert sorted(drawn) == candidates_of(77, row, n, m)
        assert len(set(drawn.tolist())) == m
        assert row not in drawn
        assert drawn.min() >= 0
        assert drawn.max() < n


def test_candidates_are_uniform():
    """Chi-square of how often each row, and each pair of rows, is a candidate of row 3."""
    n, m, trials = 9, 3, 6000
    sets = [draw(key, 3, n, m) for key in range(trials)]
    counts = np.bincount(np.concatenate(sets), minlength=n)
    assert counts[3] == 0
    expected = trials * m / (n - 1)
    # The counts of a sample without replacement vary less than a multinomial's: 7 degrees.
    assert ((np.delete(counts, 3) - expected) ** 2 / expected).sum() < 24.3  # p = 0.001
    triples = np.unique([np.sort(one) for one in sets], axis=0, return_counts=True)[1]
    assert len(triples) == 56
    assert ((triples - trials / 56) ** 2 / (trials / 56)).sum() < 93.2  # 55 degrees, p = 0.001


@pytest.mark.parametrize("kind", ["float16", "float32", "ties"])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("n", "m", "k"), [(3, 1, 1), (50, 48, 48), (300, 40, 7), (300, 40, 40)])
def test_top_of_the_candidates(kind, paired, n, m, k):
    x = rows_of(kind, n, 12, n)
    y = rows_of(kind, n, 12, n + 1) if paired else x
    similarity = "dot" if kind == "ties" else "cosine"
    runtime = Runtime(device="cpu", seed=5)
    embeddings = batchplan.load_embeddings(x, y if paired else None)
    found = proximity_graph(embeddings, m, k, runtime, similarity=similarity)
    assert found.indices.shape == found.similarities.shape == (n, k)
    assert found.indices.dtype == np.int32
    a, b = x.astype(np.float64), y.astype(np.float64)
    if similarity == "cosine":
        a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    for row in range(n):
        drawn = np.array(candidates_of(key_of(runtime), row, n, m))
        values = b[drawn] @ a[row]
        order = np.argsort(-values, kind="stable")[:k]
        np.testing.assert_allclose(found.similarities[row], values[order], atol=1e-6)
        assert set(found.indices[row]) <= set(drawn)
        assert len(set(found.indices[row].tolist())) == k
        if kind == "ties":
            assert np.array_equal(found.indices[row], drawn[order])


@pytest.mark.parametrize("candidates", [79, 80, 10_000])
def test_all_rows_as_candidates_are_the_nearest_neighbours(candidates):
    embeddings = batchplan.load_embeddings(
        rows_of("float32", 80, 8, 0), rows_of("float32", 80, 8, 1)
    )
    found = proximity_graph(embeddings, candidates, 9, CPU)
    exact = nearest_neighbors(embeddings, 9, CPU)
    assert np.array_equal(found.indices, exact.indices)
    assert np.array_equal(found.similarities, exact.similarities)
    more = proximity_graph(embeddings, candidates, 1000, CPU)
    assert more.indices.shape == (80, 79)


def test_threads_and_blocks_do_not_matter(use_threads, monkeypatch):
    embeddings = batchplan.load_embeddings(rows_of("float32", 700, 16, 0))
    found = []
    for threads, block in ((1, 256), (2, 64), (3, 1000), (1, 1)):
        use_threads(threads)
        monkeypatch.setattr(proximity, "_BLOCK", block)
        found.append(proximity_graph(embeddings, 60, 10, CPU))
    for other in found[1:]:
        assert np.array_equal(found[0].indices, other.indices)
        assert np.array_equal(found[0].similarities, other.similarities)
    seeded = proximity_graph(embeddings, 60, 10, Runtime(device="cpu", seed=1))
    assert not np.array_equal(found[0].indices, seeded.indices)


@pytest.mark.parametrize("candidates", [50, 500])
def test_refuses_what_cannot_fit(candidates):
    embeddings = batchplan.load_embeddings(np.ones((500, 2), np.float32))
    with pytest.raises(
        ResourceError,
        match=r"50 neighbours of each of 500 .* need .* is left; .* use fewer --neighbors",
    ):
        proximity_graph(embeddings, candidates, 50, Runtime(device="cpu", memory=1 << 20))


@pytest.mark.parametrize("candidates", [5, 50])
def test_refuses_products_that_overflow(candidates):
    rows = np.full((40, 4), 1e30, np.float32)
    embeddings = batchplan.load_embeddings(rows)
    with pytest.raises(InputError, match=r"float32 \(largest 3\.4e\+38\) overflows"):
        proximity_graph(embeddings, candidates, 3, CPU, similarity="dot")
