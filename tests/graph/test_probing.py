"""Neighbours found by way of batches, against all pairs of the batches that are looked at."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from batchplan.graph import probing
from batchplan.guard.guard import Guard
from batchplan.runtime import Runtime


def sides(n, d, seed):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((2, n, d)).astype(np.float32)
    made[1] += made[0]
    return [torch.from_numpy(side / np.linalg.norm(side, axis=1, keepdims=True)) for side in made]


def expected(x, y, rows, offsets, k, guard):
    """In float64, row by row: the nearest batches by their centres, then the nearest of those."""
    x, y = x.double().numpy(), y.double().numpy()
    batches = [rows[a:b] for a, b in pairwise(offsets)]
    own, others = (np.array([side[batch].mean(axis=0) for batch in batches]) for side in (x, y))
    likeness = own @ others.T
    likeness = likeness + likeness.T
    np.fill_diagonal(likeness, np.inf)
    found = np.full((len(x), k), -1)
    for number, batch in enumerate(batches):
        near = np.argsort(-likeness[number], kind="stable")[: probing.PROBED + 1]
        keys = np.concatenate([batches[one] for one in sorted(near)])
        for i in batch:
            allowed = [
                j
                for j in keys
                if j != i
                and all(codes[i] < 0 or codes[i] != codes[j] for codes in guard.apart)
                and (guard.ceilings is None or x[i] @ y[j] < min(guard.ceilings[[i, j]]))
            ]
            best = sorted(allowed, key=lambda j: -(x[i] @ y[j]))[:k]
            found[i, : len(best)] = best
    return found


GUARDS = {
    "none": lambda n, rng: Guard(),
    "groups": lambda n, rng: Guard(apart=(rng.integers(-1, 5, n),)),
    "ceilings": lambda n, rng: Guard(rng.uniform(-0.2, 0.6, n).astype(np.float32)),
    "nothing allowed": lambda n, rng: Guard(np.full(n, -2, np.float32)),
}


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(("n", "size", "k"), [(400, 8, 6), (403, 8, 20), (30, 30, 5), (64, 3, 4)])
def test_against_brute_force(n, size, k, guard):
    rng = np.random.default_rng(n)
    x, y = sides(n, 16, seed=k)
    rows = rng.permutation(n)
    offsets = np.append(np.arange(0, n, size), n)
    limits = GUARDS[guard](n, rng)
    found = probing.probed_neighbors(x, y, rows, offsets, k, limits, Runtime("cpu"))
    assert np.array_equal(found, expected(x, y, rows, offsets, k, limits))


def test_the_same_with_any_number_of_threads_and_small_tiles(use_threads, monkeypatch):
    x, y = sides(300, 16, seed=0)
    rows, offsets = np.random.default_rng(0).permutation(300), np.append(np.arange(0, 300, 16), 300)
    found = []
    for count, entries in ((1, 1 << 22), (3, 1 << 22), (2, 64)):
        use_threads(count)
        monkeypatch.setattr(probing, "_ENTRIES", entries)
        found.append(probing.probed_neighbors(x, y, rows, offsets, 7, Guard(), Runtime("cpu")))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_a_plan_of_clusters_finds_the_exact_neighbours():
    """Rows of a cluster are each other's nearest, so an index of clusters finds all of them."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(384) % 24)
    centres = rng.standard_normal((24, 32))
    x, y = (
        torch.from_numpy(centres[labels] + 0.1 * rng.standard_normal((384, 32))).float()
        for _ in range(2)
    )
    rows = np.argsort(labels, kind="stable")
    found = probing.probed_neighbors(x, y, rows, np.arange(0, 385, 16), 8, Guard(), Runtime("cpu"))
    logits = (x @ y.T).numpy()
    np.fill_diagonal(logits, -np.inf)
    exact = np.argsort(-logits, axis=1, kind="stable")[:, :8]
    assert np.array_equal(found, exact)
