"""knn against a plain greedy search over the whole matrix of similarities."""

import numpy as np
import pytest

from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.planners import plan
from batchplan.planners.papers.knn.options import KnnOptions
from batchplan.planners.papers.knn.planner import fill
from batchplan.runtime import Runtime
from tests.dense import similarities


def similarities_of(embeddings):
    scores = similarities(embeddings)
    np.fill_diagonal(scores, -np.inf)
    return scores


def greedy(scores, starts, batch_size, k):
    """The rule of the docs, said again with lists."""
    near = [list(np.argsort(-row, kind="stable")[:k]) for row in scores]
    left, batches = list(starts), []
    while left:
        batch = [left.pop(0)]
        while len(batch) < batch_size and left:
            own = [row for row in near[batch[0]] if row in left]
            others = [(scores[a, b], a, b) for a in batch for b in near[a] if b in left]
            if own:
                chosen = own[0]
            elif others:
                best = max(score for score, *_ in others)
                chosen = next(b for score, _, b in others if score == best)
            else:
                chosen = left[0]
            left.remove(chosen)
            batch.append(chosen)
        batches.append([int(row) for row in batch])
    return batches


@pytest.mark.parametrize("k", [1, 3, 10, 89])
@pytest.mark.parametrize("batch_size", [2, 7, 32, 90])
def test_batches_are_those_of_a_plain_search(make, k, batch_size):
    embeddings = make(90)
    starts = Runtime(seed=4).generator().permutation(90)
    expected = greedy(similarities_of(embeddings), starts, batch_size, k)
    made = plan(embeddings, planner="knn", batch_size=batch_size, neighbors=k, seed=4, device="cpu")
    assert [batch.tolist() for batch in made.batches()] == expected


def test_rows_that_know_each_other_only():
    """Two rows of four know each other only: the batch goes on with the next random row."""
    indices = np.array([[1], [0], [3], [2]])
    for size in (2, 4):
        order = fill(indices, np.ones((4, 1), np.float32), np.array([2, 0, 1, 3]), size)
        assert order.tolist() == [2, 3, 0, 1]


def test_planted_clusters_are_found(planted):
    embeddings, labels = planted(12, 8)
    made = plan(embeddings, planner="knn", batch_size=8, device="cpu")
    assert all(len(set(labels[batch])) == 1 for batch in made.batches())


def test_the_seed_decides(make):
    embeddings = make(90)
    one, other = (
        plan(embeddings, planner="knn", batch_size=8, seed=s, device="cpu") for s in (0, 1)
    )
    assert not np.array_equal(one.rows, other.rows)


def test_similarity_decides():
    x = np.array([[1, 0], [9, 9], [1, 0.1], [1, 0.2]], np.float32)
    embeddings = Embeddings.from_arrays(x)
    cosine, dot = (
        plan(embeddings, planner="knn", batch_size=2, similarity=s, device="cpu", seed=1)
        for s in ("cosine", "dot")
    )
    pairs = [{frozenset(map(int, batch)) for batch in made.batches()} for made in (cosine, dot)]
    assert pairs[0] != pairs[1]


def test_refusals():
    with pytest.raises(InputError, match="neighbors: got 0, expected a number of at least 1"):
        KnnOptions(neighbors=0)
