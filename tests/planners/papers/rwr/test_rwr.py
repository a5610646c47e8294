"""What rwr finds, and what it refuses."""

import random

import numpy as np
import pytest

import batchplan
from batchplan import InputError, ResourceError
from batchplan.planners import plan
from batchplan.planners.papers.rwr.options import RwrOptions
from batchplan.planners.papers.rwr.proximity import proximity_graph
from batchplan.runtime import Runtime


def make_plan(embeddings, **options):
    return plan(embeddings, planner="rwr", **{"device": "cpu", "batch_size": 8, **options})


@pytest.mark.parametrize("walk", ["rwr", "rw", "bfs"])
def test_planted_clusters_are_recovered(planted, walk):
    embeddings, labels = planted(20, 16)
    made = make_plan(embeddings, batch_size=16, neighbors=15, walk=walk, coverage="partition")
    assert made.metadata.partitions_rows
    for batch in made.batches():
        assert len(set(labels[batch])) == 1


@pytest.mark.parametrize("candidates", [60, 319])
def test_independent_batches_stay_in_clusters(planted, candidates):
    embeddings, labels = planted(5, 64)
    made = make_plan(embeddings, candidate_rows=candidates, neighbors=5, coverage="independent")
    assert not made.metadata.partitions_rows
    assert made.num_batches == 40
    purity = np.mean([np.bincount(labels[batch]).max() / 8 for batch in made.batches()])
    assert purity > 0.9


def test_independent_batches(make):
    """Algorithm 1 draws each batch from all rows. That is the default."""
    embeddings = make(90)
    made = make_plan(embeddings)
    assert np.diff(made.batch_offsets).tolist() == [8] * 12  # 90 / 8, rounded up, all full
    other = make_plan(embeddings, coverage="independent", seed=1)
    assert not np.array_equal(other.rows, made.rows)


def authors_epoch(graph, size, restart, draw):
    """The batches of an epoch in the code of the authors, THUDM/BatchSampler."""
    n, seen, batches = len(graph), set(), []
    while len(seen) < n // size * size:
        start = draw.choice(sorted(set(range(n)) - seen))
        here, found = start, {start}
        while len(found) < size:
            here = start if draw.random() < restart else draw.choice(graph[here])
            found.add(here)
        batches.append(found)
        seen |= found
    return batches, set(range(n)) - seen


def test_complete_batches_are_as_many_as_those_of_the_authors(some):
    embeddings, draw, size = batchplan.load_embeddings(some), random.Random(0), 32
    options = {"candidate_rows": 200, "neighbors": 40, "guard": False}
    ours, theirs = [], []
    for seed in range(5):
        made = make_plan(
            embeddings, coverage="complete", tail="drop", batch_size=size, seed=seed, **options
        )
        ours.append(len(made))
        runtime = Runtime(device="cpu", seed=seed)
        graph = proximity_graph(embeddings, 200, 40, runtime).indices.tolist()
        theirs.append(len(authors_epoch(graph, size, 0.2, draw)[0]))
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.1)
    assert np.mean(ours) > 2 * (embeddings.num_rows // size)


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_complete_batches_meet_all_rows(make, tail):
    made = make_plan(make(90), coverage="complete", tail=tail, batch_order="shuffled")
    *others, last = np.diff(made.batch_offsets).tolist()
    left = 90 - len(set(made.rows.tolist()))
    assert set(others) == {8}
    assert len(others) > 11
    assert (left <= 2) if tail == "drop" else (left == 0)
    assert (last <= 2) if tail == "keep" else (last == 8)


@pytest.mark.parametrize("coverage", ["partition", "complete", "independent"])
def test_threads_do_not_matter(use_threads, make, coverage):
    embeddings, found = make(700), []
    for threads in (1, 2, 3):
        use_threads(threads)
        found.append(make_plan(embeddings, candidate_rows=50, neighbors=6, coverage=coverage))
    assert np.array_equal(found[0].rows, found[1].rows)
    assert np.array_equal(found[0].rows, found[2].rows)
    assert found[0].metadata == found[2].metadata


def test_the_schedule():
    for progress, expected in ((0, 0.2), (0.3, 0.155), (1, 0.05)):
        now = RwrOptions(restart="0.2:0.05", progress=progress).restart_now()
        assert now == pytest.approx(expected)
    assert RwrOptions(restart="0.2", progress=0.5).restart_now() == 0.2
    assert RwrOptions(restart=0.7) == RwrOptions(restart="0.7")
    assert RwrOptions(restart=np.float64(0.7)).restart == "0.7"


def test_restart_of_rw_is_not_looked_at(make):
    one, other = (make_plan(make(90), walk="rw", restart=r) for r in ("0.1", "0.9"))
    assert np.array_equal(one.rows, other.rows)
    zero = make_plan(make(90), walk="rwr", restart="0")
    assert np.array_equal(one.rows, zero.rows)


def test_harder_as_the_paper_says(some):
    """Sections 4.3 and 5.3: harder with more candidates and with a larger restart, and hardest
    breadth first (5.5)."""
    embeddings = batchplan.load_embeddings(some)

    def loss(**options):
        made = make_plan(embeddings, batch_size=64, coverage="partition", **options)
        return batchplan.evaluate(made, embeddings, random_trials=2).loss_train

    by_candidates = [loss(candidate_rows=count) for count in (50, 150, 500)]
    assert by_candidates == sorted(by_candidates)
    by_restart = [loss(walk="rw"), loss(restart=0.2), loss(restart=0.7), loss(walk="bfs")]
    assert by_restart == sorted(by_restart)


def test_independent_batches_can_be_evaluated(make):
    embeddings = make(90)
    made = make_plan(embeddings, coverage="independent")
    assert batchplan.evaluate(made, embeddings).loss_train > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"candidate_rows": 0}, "candidate rows: got 0, expected a number of at least 1"),
        ({"neighbors": -1}, "neighbors: got -1, expected a number of at least 1"),
        ({"restart": "1.2"}, "restart: got '1.2', expected a probability from 0 to 1"),
        ({"restart": -0.1}, "restart: got '-0.1'"),
        ({"restart": float("nan")}, "restart: got 'nan'"),
        ({"restart": "0.2:0.1:0"}, "restart: got '0.2:0.1:0'"),
        ({"restart": "0.2:"}, "restart: got '0.2:'"),
        ({"restart": "high"}, "restart: got 'high'"),
        ({"restart": None}, "restart: got None, expected text"),
        ({"progress": 1.5}, "progress: got 1.5, expected a finite number from 0 to 1"),
        ({"progress": float("nan")}, "progress: got nan"),
        ({"walk": "levy"}, "walk: got 'levy', expected rwr or rw or bfs"),
        ({"coverage": "all"}, "coverage: got 'all', expected independent or complete or partition"),
    ],
)
def test_refusals(make, options, says):
    with pytest.raises(InputError) as error:
        make_plan(make(20), **options)
    assert str(error.value).startswith(says)


def test_too_little_memory(make):
    with pytest.raises(ResourceError, match=r"proximity graph: .* need .* is left"):
        make_plan(make(90), memory=1_000_000)


@pytest.mark.parametrize("coverage", ["partition", "complete", "independent"])
def test_plans_say_how_their_batches_are_ordered(coverage):
    rows = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    plan = batchplan.plan(
        batchplan.load_embeddings(rows),
        planner="rwr",
        batch_size=8,
        tail="drop",
        batch_order="shuffled",
        coverage=coverage,
    )
    assert (plan.metadata.tail, plan.metadata.batch_order) == ("drop", "shuffled")
