"""B3 against its definitions."""

import numpy as np
import pytest

import batchplan
from batchplan.planners.papers.b3.options import B3Options
from batchplan.planners.papers.b3.planner import clusters_of, mutual_windows
from batchplan.runtime import Runtime
from tests.dense import unit
from tests.planners.conftest import batch_of_row


def made(data, **options):
    return batchplan.plan(data, planner="b3", **{"batch_size": 16, "device": "cpu", **options})


@pytest.mark.parametrize(("skipped", "taken"), [(0, 5), (3, 7), (30, 100), (60, 5), (88, 1)])
@pytest.mark.parametrize("paired", [True, False])
def test_links_go_both_ways_within_the_windows(make, skipped, taken, paired):
    """By ranks in float64, one row at a time."""
    data = make(90)
    x = data.x.rows(0, 90).astype(np.float64)
    y = data.y.rows(0, 90).astype(np.float64) if paired else x
    data = batchplan.load_embeddings(
        *(side.astype(np.float32) for side in (x, y)[: 1 + paired]), single=not paired
    )
    x, y = unit(x), unit(y)
    inside = np.zeros((90, 90), bool)
    for row, similarities in enumerate(x @ y.T):
        order = [other for other in np.argsort(-similarities, kind="stable") if other != row]
        inside[row, order[skipped : skipped + taken]] = True
    options = B3Options(skip_nearest=skipped, neighbors=taken)
    graph = mutual_windows(data, options, Runtime("cpu"))
    found = np.zeros((90, 90), bool)
    found[np.repeat(np.arange(90), np.diff(graph.indptr)), graph.indices] = True
    assert np.array_equal(found, inside & inside.T)


@pytest.mark.parametrize("cluster_size", [3, 4, 12, 20])
def test_batches_combine_random_clusters(cluster_size):
    sizes = np.array([12] * 6 + [5])
    one, again, other = (
        clusters_of(sizes, cluster_size, np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    clusters, batches = one
    assert (np.diff(clusters) <= 0).all()
    assert np.bincount(batches, weights=clusters).tolist() == sizes.tolist()
    whole = clusters == cluster_size
    assert whole.sum() == (sizes // cluster_size).sum()
    assert len(set(batches[~whole].tolist())) == (~whole).sum()
    assert np.array_equal(batches, again[1])
    assert np.array_equal(batches, other[1]) == (not whole.any())


def test_rows_of_a_cluster_share_a_batch(planted):
    """In data of clusters whose rows are near each other, with no rank left out."""
    data, labels = planted(16, 8)
    found = made(data, skip_nearest=0, neighbors=7, cluster_size=8)
    batches = batch_of_row(found)
    assert all(len(set(batches[labels == label].tolist())) == 1 for label in range(16))
    assert found.metadata.metrics["edges"] >= 16 * 8 * 7 / 2 * 0.9


def test_batches_are_milder_than_those_of_the_nearest_rows(make):
    data = make(400)
    mild, hard, random = (
        batchplan.evaluate(plan, data, device="cpu").loss_train
        for plan in (made(data), made(data, skip_nearest=0, neighbors=20),
                     batchplan.plan(data, planner="random", batch_size=16, device="cpu"))
    )  # fmt: skip
    assert random < mild < hard


def test_windows_beyond_the_rows_link_none(make):
    found = made(make(90), skip_nearest=1000)
    assert found.metadata.metrics["edges"] == 0
    assert sorted(found.rows) == list(range(90))
