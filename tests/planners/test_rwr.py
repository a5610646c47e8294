"""What rwr finds, the parts of an epoch, and what it says about them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import batchplan
from batchplan import InputError, ResourceError
from batchplan.cli.app import app
from batchplan.planners import plan
from batchplan.planners.rwr.options import RwrOptions
from batchplan.plans import Plan

SAMPLE = Path(__file__).parents[2] / "sample_data" / "pairs.parquet"


def make_plan(embeddings, **options):
    return plan(embeddings, planner="rwr", **{"device": "cpu", "batch_size": 8, **options})


@pytest.mark.parametrize("walk", ["rwr", "rw", "bfs"])
def test_planted_clusters_are_recovered(planted, walk):
    embeddings, labels = planted(20, 16)
    made = make_plan(embeddings, batch_size=16, neighbors=15, walk=walk)
    assert made.metadata.partitions_rows
    assert made.metadata.metrics["strays"] == 0
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
    embeddings = make(90)
    made = make_plan(embeddings, coverage="independent")
    assert np.diff(made.batch_offsets).tolist() == [8] * 12  # 90 / 8, rounded up, all full
    more = make_plan(embeddings, coverage="independent", num_batches=30, tail="pad")
    assert np.array_equal(more.rows[: len(made.rows)], made.rows)
    other = make_plan(embeddings, coverage="independent", seed=1)
    assert not np.array_equal(other.rows, made.rows)


@pytest.mark.parametrize("coverage", ["partition", "independent"])
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


@pytest.mark.parametrize("tail", ["keep", "drop"])
def test_parts_cover_an_epoch_once(make, tmp_path, tail):
    embeddings = make(90)
    whole = make_plan(embeddings, neighbors=5, tail=tail)
    paths, parts = [], []
    for count in (3, 1, 5, None):
        part = make_plan(
            embeddings, neighbors=5, tail=tail, num_batches=count, exclude=paths or None
        )
        paths.append(str(tmp_path / f"{len(paths)}.npy"))
        part.save(paths[-1])
        parts.append(part)
    assert [part.num_batches for part in parts] == [3, 1, 5, 3 if tail == "keep" else 2]
    assert np.array_equal(np.concatenate([part.rows for part in parts]), whole.rows)
    assert not any(part.metadata.partitions_rows for part in parts)
    assert parts[2].metadata.metrics["rows_excluded"] == 32
    if tail == "keep":
        with pytest.raises(InputError, match="already have all rows"):
            make_plan(embeddings, exclude=paths)
    else:
        with pytest.raises(InputError, match="2 rows are left, no full batch of 8"):
            make_plan(embeddings, exclude=paths, tail="drop")


def test_parts_of_embeddings_that_change(make, tmp_path):
    """The graph is made anew after some batches (algorithm 1), of what the model now computes."""
    first, rng, used = make(90), np.random.default_rng(3), []
    paths = []
    for step in range(4):
        noise = rng.standard_normal((90, 8)).astype(np.float32)
        now = batchplan.load_embeddings(first.x.rows(0, 90) + step * noise)
        part = make_plan(now, num_batches=3, exclude=paths or None)
        paths.append(str(tmp_path / f"{step}.npz"))
        part.save(paths[-1])
        used += part.rows.tolist()
    assert sorted(used) == list(range(90))


def test_excluded_plans_belong_to_the_data(make, tmp_path):
    path = str(tmp_path / "other.npz")
    plan(make(64), planner="random", batch_size=8).save(path)
    with pytest.raises(InputError, match=r"exclude .*other\.npz: plan: made for 64 rows"):
        make_plan(make(90), exclude=[path])
    with pytest.raises(InputError, match=r"nowhere\.npz"):
        make_plan(make(64), exclude=["nowhere.npz"])


def test_stored_options_know_no_folder(make, tmp_path):
    embeddings = make(90)
    first = make_plan(embeddings, num_batches=2)
    stored = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        first.save(tmp_path / folder / "first.npy")
        stored.append(make_plan(embeddings, exclude=[tmp_path / folder / "first.npy"]))
    assert stored[0].metadata == stored[1].metadata
    (digest,) = stored[0].metadata.options["exclude"]
    assert digest.startswith("sha256:")


def test_shuffled_parts(make):
    embeddings = make(90)
    planned, shuffled = (
        make_plan(embeddings, num_batches=99, batch_order=order)
        for order in ("planned", "shuffled")
    )
    batches, mixed = ([tuple(b) for b in one.batches()] for one in (planned, shuffled))
    assert sorted(batches) == sorted(mixed)
    assert batches[:-1] != mixed[:-1]
    assert batches[-1] == mixed[-1]
    assert len(batches[-1]) == 2
    assert planned.metadata.partitions_rows


def test_harder_as_the_paper_says():
    """Sections 4.3 and 5.3: harder with more candidates and with a larger restart, and hardest
    breadth first (5.5)."""
    embeddings = batchplan.load_embeddings(SAMPLE)

    def loss(**options):
        made = make_plan(embeddings, batch_size=64, **options)
        return batchplan.evaluate(made, embeddings, random_trials=2).loss_train

    by_candidates = [loss(candidate_rows=count) for count in (100, 300, 1000)]
    assert by_candidates == sorted(by_candidates)
    by_restart = [loss(walk="rw"), loss(restart=0.2), loss(restart=0.7), loss(walk="bfs")]
    assert by_restart == sorted(by_restart)


def test_partial_plans_can_be_evaluated(make):
    embeddings = make(90)
    for options in ({"num_batches": 3}, {"coverage": "independent"}):
        assert batchplan.evaluate(make_plan(embeddings, **options), embeddings).loss_train > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"candidate_rows": 0}, "candidate rows: got 0, expected a number of at least 1"),
        ({"neighbors": -1}, "neighbors: got -1, expected a number of at least 1"),
        ({"num_batches": 0}, "num batches: got 0, expected a number of at least 1"),
        ({"num_batches": 2.5}, "num batches: got 2.5, expected an integer or None"),
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
        ({"coverage": "all"}, "coverage: got 'all', expected partition or independent"),
        ({"exclude": "plan.npy"}, "exclude: got 'plan.npy', expected a list of text or None"),
        ({"exclude": ["a.npy"], "coverage": "independent"}, "exclude: needs --coverage partition"),
        ({"num_batches": 3, "tail": "pad"}, "tail: got pad, expected keep or drop"),
    ],
)
def test_refusals(make, options, says):
    with pytest.raises(InputError) as error:
        make_plan(make(20), **options)
    assert str(error.value).startswith(says)


def test_too_little_memory(make):
    with pytest.raises(ResourceError, match=r"proximity graph: .* need .* is left"):
        make_plan(make(90), memory=1_000_000)


def test_no_list_to_exclude_is_none():
    assert RwrOptions(exclude=[]) == RwrOptions()
    hash(RwrOptions(exclude=["a.npy", "b.npy"]))


def test_command_line(tmp_path):
    def run(*arguments):
        words = ["rwr", str(SAMPLE), *map(str, arguments), "--device", "cpu"]
        return CliRunner().invoke(app, words)

    one, two, three = (tmp_path / f"{name}.npy" for name in ("one", "two", "three"))
    assert run("--num-batches", 2, "-o", one, "-q").exit_code == 0
    part = ["--num-batches", 3, "--exclude", one]
    assert run(*part, "-o", two, "-q").exit_code == 0
    result = run("--exclude", one, "--exclude", two, "-o", three, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows_excluded"] == 5 * 64
    rows = np.concatenate([Plan.load(path).rows for path in (one, two, three)])
    assert sorted(rows) == list(range(2048))
    result = run(*part, "-o", one, "--force")
    assert result.exit_code == 3  # it would overwrite what it reads
    assert sorted(Plan.load(one).rows) == sorted(rows[:128])


@pytest.mark.parametrize("coverage", ["partition", "independent"])
def test_parts_and_samples_say_how_their_batches_are_ordered(coverage):
    rows = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    plan = batchplan.plan(
        batchplan.load_embeddings(rows),
        planner="rwr",
        batch_size=8,
        tail="drop",
        batch_order="shuffled",
        coverage=coverage,
        num_batches=3,
    )
    assert (plan.metadata.tail, plan.metadata.batch_order) == ("drop", "shuffled")
