"""What gcbs finds, and what it says about it."""

from pathlib import Path

import numpy as np
import pytest

from batchplan import InputError, ResourceError
from batchplan.data import load_embeddings
from batchplan.data.answers import answers_of
from batchplan.graph.csr import row_of_entry
from batchplan.guard.guard import make_guard
from batchplan.planners import plan
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.planners.papers.gcbs.planner import GcbsOptions, edge_count
from batchplan.runtime import Runtime
from tests.planners.conftest import batch_of_row

SAMPLE = Path(__file__).parents[3] / "sample_data" / "pairs.parquet"


def edges_of(embeddings, count):
    """The largest off-diagonal entries by brute force, ties by (row, column)."""
    x, y = (
        side.rows(0, embeddings.num_rows).astype(np.float32)
        for side in (embeddings.x, embeddings.y)
    )
    x, y = (
        rows / np.linalg.norm(rows.astype(float), axis=1, keepdims=True).astype(np.float32)
        for rows in (x, y)
    )
    found = (x.astype(float) @ y.T.astype(float)).astype(np.float32)
    order = np.argsort(-found, axis=None, kind="stable")
    order = order[order // len(x) != order % len(x)][:count]
    rows, columns = np.divmod(order, len(x))
    return rows, columns


def equal_rows(embeddings):
    """bool (N, N): whether two rows have the same x or the same y."""
    sides = [side.rows(0, embeddings.num_rows) for side in (embeddings.x, embeddings.y)]
    return np.any([(side[:, None] == side).all(axis=2) for side in sides], axis=0)


def share_of(made, rows, columns):
    batch = batch_of_row(made)
    inside = (batch[rows] == batch[columns]) & (batch[rows] >= 0)
    return float(inside.mean()) if len(rows) else 0.0


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
@pytest.mark.parametrize("batch_order", ["planned", "shuffled"])
def test_metrics_are_those_of_brute_force(embeddings, tail, batch_order):
    made = plan(
        embeddings,
        planner="gcbs",
        device="cpu",
        quantile=0.95,
        batch_size=8,
        tail=tail,
        batch_order=batch_order,
    )
    rows, columns = edges_of(embeddings, 401)
    alike = equal_rows(embeddings)
    np.fill_diagonal(alike, False)
    equal = alike[rows, columns]
    dropped = {}
    if alike.any():
        left = sum(int(alike[np.ix_(batch, batch)].sum()) // 2 for batch in made.batches())
        dropped = {"broken_pairs": left}
    assert made.metadata.metrics == {**dropped, "edges": int((~equal).sum())}


@pytest.mark.parametrize("size", [8, 16])
def test_planted_clusters_are_recovered(planted, size):
    embeddings, labels = planted(20, size)
    n = 20 * size
    # A cluster that is whole: every row beside its size - 1 fellows.
    made = plan(embeddings, planner="gcbs", device="cpu", neighbors=size - 1, batch_size=size)
    baseline = plan(embeddings, planner="random", batch_size=size)
    assert made.metadata.metrics["edges"] == n * (size - 1)
    for batch in made.batches():
        assert len(set(labels[batch])) == 1
    rows, columns = edges_of(embeddings, n * (size - 1))
    assert share_of(made, rows, columns) == 1
    assert share_of(baseline, rows, columns) < 0.2


@pytest.mark.parametrize("spread", [0.3, 0.6])
def test_blurred_clusters_beat_random(planted, spread):
    embeddings, labels = planted(20, 16, spread)
    made = plan(embeddings, planner="gcbs", device="cpu", neighbors=10, batch_size=16)
    rows, columns = edges_of(embeddings, 3200)
    baseline = np.mean(
        [
            share_of(plan(embeddings, planner="random", batch_size=16, seed=s), rows, columns)
            for s in range(5)
        ]
    )
    assert share_of(made, rows, columns) > 5 * baseline
    purity = np.mean([np.bincount(labels[batch]).max() / 16 for batch in made.batches()])
    assert purity > 0.5


def test_sample_data():
    embeddings = load_embeddings(SAMPLE)
    made = plan(embeddings, planner="gcbs", device="cpu", quantile=0.99, batch_size=64)
    baseline = plan(embeddings, planner="random", batch_size=64)
    runtime = Runtime(device="cpu")
    graph = build_graph(
        embeddings, edge_count(2048, GcbsOptions(quantile=0.99)), runtime, weights=False
    )
    graph = graph.without(
        make_guard(embeddings, runtime, answers=answers_of(embeddings)), embeddings, runtime
    )
    edges = row_of_entry(graph.indptr), graph.indices
    assert made.metadata.metrics["edges"] == len(graph.indices)
    assert share_of(made, *edges) > 2 * share_of(baseline, *edges)


@pytest.mark.parametrize("n", [90, 93])
def test_reverse_is_the_other_way_round(make, n):
    """The order is reversed before it is cut, so where N mod B is not 0 the batches differ."""
    reverse, forward = (
        plan(make(n), planner="gcbs", device="cpu", quantile=0.95, batch_size=9, reverse=way)
        for way in (True, False)
    )
    assert np.array_equal(reverse.rows, forward.rows[::-1])
    assert reverse.metadata.options["reverse"]
    assert not forward.metadata.options["reverse"]


def test_neighbors_is_a_quantile(make):
    embeddings = make(90)
    by_count = plan(embeddings, planner="gcbs", device="cpu", neighbors=7, batch_size=9)
    by_share = plan(
        embeddings, planner="gcbs", device="cpu", quantile=1 - 7 * 90 / (90 * 89), batch_size=9
    )
    assert by_count.metadata.metrics == by_share.metadata.metrics
    assert by_count.metadata.metrics["edges"] == 630
    assert np.array_equal(by_count.rows, by_share.rows)


def test_the_seed_orders_batches_only(make):
    one, other = (
        plan(make(90), planner="gcbs", device="cpu", batch_size=9, seed=seed) for seed in (0, 1)
    )
    assert np.array_equal(one.rows, other.rows)


@pytest.mark.parametrize(
    ("quantile", "n", "edges"),
    [
        (0.999, 1000, 999),
        (0.5, 5, 10),
        (0.9, 11, 11),
        (0.999, 2, 1),  # never empty
        (1 - 1e-12, 1000, 1),
        (1e-12, 1000, 999_000),
        (5e-324, 3, 6),  # never more than there are
        (0.99, 10**6, 9_999_990_000),
    ],
)
def test_quantile(quantile, n, edges):
    assert edge_count(n, GcbsOptions(quantile=quantile)) == edges


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"quantile": 0.0}, "quantile: got 0.0"),
        ({"quantile": 1.0}, "quantile: got 1.0"),
        ({"quantile": float("nan")}, "quantile: got nan"),
        ({"neighbors": 0}, "neighbors: got 0"),
        ({"neighbors": 2.5}, "neighbors: got 2.5"),
        ({"neighbors": 90}, r"the 90 rows \(at most 89\)"),
    ],
)
def test_refusals(make, options, says):
    with pytest.raises(InputError, match=says):
        plan(make(90), planner="gcbs", device="cpu", **options)


def test_too_little_memory(make):
    with pytest.raises(ResourceError, match=r"need .* is left"):
        plan(make(90), planner="gcbs", device="cpu", memory=1_000_000)


def test_every_edge(make):
    made = plan(make(30), planner="gcbs", device="cpu", neighbors=29, batch_size=30)
    assert made.metadata.metrics["edges"] == 870
