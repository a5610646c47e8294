"""cluster: exact sizes, planted clusters, and the rule of balancing said again in NumPy."""

import numpy as np
import pytest

from batchplan import InputError, ResourceError, Runtime, load_embeddings
from batchplan.planners import plan, run_planner
from batchplan.planners.papers.cluster.options import ClusterOptions
from batchplan.planners.papers.cluster.planner import _assign
from tests.dense import unit_sides


def inertia(points, plan):
    return np.mean(
        np.concatenate([((points[b] - points[b].mean(0)) ** 2).sum(1) for b in plan.batches()])
    )


def points_of(embeddings):
    return sum(unit_sides(embeddings)) / 2


@pytest.mark.parametrize(("count", "size"), [(12, 8), (40, 5), (3, 30)])
def test_planted_clusters_are_found(planted, count, size):
    embeddings, labels = planted(count, size)
    made = plan(embeddings, planner="cluster", batch_size=size, device="cpu")
    assert all(len(set(labels[batch])) == 1 for batch in made.batches())


@pytest.mark.parametrize("batch_size", [4, 16, 33])
def test_clusters_are_tighter_than_random_batches(make, batch_size):
    embeddings = make(165)
    made, random = (
        plan(embeddings, planner=name, batch_size=batch_size, device="cpu")
        for name in ("cluster", "random")
    )
    points = points_of(embeddings)
    assert inertia(points, made) < 0.9 * inertia(points, random)
    assert all((np.diff(batch) > 0).all() for batch in made.batches())


def test_one_batch_and_no_iterations(make):
    embeddings = make(20)
    made = plan(embeddings, planner="cluster", batch_size=20, iterations=0, device="cpu")
    assert made.rows.tolist() == list(range(20))


def test_more_centres_than_rounds(make):
    """Several first centres are drawn in a round here."""
    embeddings = make(400)
    made = plan(embeddings, planner="cluster", batch_size=2, device="cpu")
    random = plan(embeddings, planner="random", batch_size=2, device="cpu")
    points = points_of(embeddings)
    assert inertia(points, made) < 0.8 * inertia(points, random)


def test_balancing_is_greedy():
    rng = np.random.default_rng(0)
    points, centres = (rng.standard_normal((n, 3)).astype(np.float32) for n in (40, 8))
    squared = ((points[:, None].astype(np.float64) - centres) ** 2).sum(2)
    ranked = np.argsort(squared, axis=1)[:, :2]
    rows, room = rng.permutation(40), np.array([3, 7] + [5] * 6)
    batch = _assign(points, centres, rows, ranked, room)
    left, expected = room.copy(), np.empty(40, np.int64)
    for row in rows:
        expected[row] = np.where(left > 0, squared[row], np.inf).argmin()
        left[expected[row]] -= 1
    assert batch.tolist() == expected.tolist()


def test_refusals(make):
    with pytest.raises(InputError, match="iterations: got -1, expected a number of at least 0"):
        ClusterOptions(iterations=-1)
    with pytest.raises(ResourceError, match="cluster: 90 rows of 8 dimensions need"):
        run_planner("cluster", make(90), ClusterOptions(batch_size=8), Runtime("cpu", 1 << 20))


def test_a_file_that_is_overwritten_while_it_runs(tmp_path):
    rows = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    data = load_embeddings(tmp_path / "x.npy", single=True)
    for wrong in (np.nan, np.inf, 0):
        np.lib.format.open_memmap(tmp_path / "x.npy", "r+")[7] = wrong
        with pytest.raises(
            InputError, match=r"x\.npy: was written to while it was in use \(got val"
        ):
            plan(data, planner="cluster", batch_size=8, device="cpu")
