"""Planners under guards: the options, what they leave out, and the command line."""

from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import batchplan
from batchplan import InputError
from batchplan.cli.app import app
from batchplan.guard.guard import guard_of
from batchplan.guard.options import GuardOptions
from batchplan.options import option
from batchplan.planners import PLANNERS, plan
from batchplan.planners.common.options import TableOptions
from batchplan.plans import Plan
from batchplan.runtime import Runtime

SAMPLE = Path(__file__).parents[2] / "sample_data" / "pairs.parquet"
GUARDED = [
    name
    for name, one in PLANNERS.items()
    if issubclass(one.options, GuardOptions) and not issubclass(one.options, TableOptions)
]

RANDOM = ("random", "shuffled")  # batches that no similarity makes


@dataclass(frozen=True, kw_only=True)
class StrictOptions(GuardOptions):
    """A limit of its own where none is given."""

    relative_margin: float | None = option(0.05, "As above.", ge=0, le=1)


def test_a_limit_replaces_the_default_of_a_planner():
    def limits(**given):
        made = StrictOptions(**given)
        return made.relative_margin, made.absolute_margin

    assert limits() == (0.05, None)
    assert limits(relative_margin=0.2) == (0.2, None)
    assert limits(relative_margin=None) == (None, None)
    assert limits(absolute_margin=0.1) == (None, 0.1)
    assert limits(absolute_margin=0.1, relative_margin=0.05) == (
        None,
        0.1,
    )  # what the command line gives
    assert limits(guard=False) == (None, None)
    with pytest.raises(InputError, match=r"relative margin 0\.2: given with absolute margin 0\.1"):
        StrictOptions(relative_margin=0.2, absolute_margin=0.1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"relative_margin": 0.2, "absolute_margin": 0.1},
            "relative margin 0.2: given with absolute margin 0.1",
        ),
        (
            {"relative_margin": 1.1},
            "relative margin: got 1.1, expected a finite number from 0 to 1",
        ),
        ({"max_score": float("nan")}, "max score: got nan, expected a finite number"),
        (
            {"max_score": 0.5, "absolute_margin": 0.1},
            "absolute margin 0.1: given with max score 0.5",
        ),
        ({"relative_margin": -1.0}, "relative margin: got -1.0"),
        ({"relative_margin": float("nan")}, "relative margin: got nan"),
        ({"relative_margin": float("inf")}, "relative margin: got inf"),
        ({"relative_margin": "high"}, "relative margin: got 'high', expected a number or None"),
        (
            {"absolute_margin": -0.1},
            "absolute margin: got -0.1, expected a finite number of at least 0",
        ),
        ({"absolute_margin": float("nan")}, "absolute margin: got nan"),
        ({"absolute_margin": float("inf")}, "absolute margin: got inf"),
        ({"guard": 1}, "guard: got 1, expected True or False"),
        ({"guard": False, "relative_margin": 0.2}, "relative margin 0.2: given with --no-guard"),
        ({"guard": False, "absolute_margin": 0.1}, "absolute margin 0.1: given with --no-guard"),
        ({"label_table": "t.parquet"}, "label table: given without --group-column"),
        ({"group_column": 3}, "group column: got 3, expected text or None"),
    ],
)
def test_refusals(make, given, says):
    for planner in GUARDED:
        with pytest.raises(InputError) as error:
            plan(make(20), planner=planner, batch_size=4, **given)
        assert str(error.value).startswith(says)


def test_no_such_group(make):
    with pytest.raises(InputError, match="hold no columns"):
        plan(make(20), planner="gcbs", batch_size=4, group_column="group")
    with pytest.raises(InputError, match="nowhere"):
        plan(batchplan.load_embeddings(SAMPLE), planner="rwr", group_column="nowhere")


def test_what_a_guard_looks_at(tmp_path):
    rows = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    rows[3] = rows[5]
    embeddings = batchplan.load_embeddings(rows)
    table = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"group": [*"aabb", *[None] * 16]}), table)
    groups = {"group_column": "group", "label_table": str(table)}
    group, equal = [0, 0, 1, 1, *[-1] * 16], [-1] * 3 + [0, -1, 0] + [-1] * 14

    def made(**given):
        guard = guard_of(embeddings, GuardOptions(**given), Runtime(device="cpu"))
        return guard.ceilings is not None, [codes.tolist() for codes in guard.apart.codes]

    assert made() == (False, [equal])
    assert made(guard=False) == (False, [])
    assert made(guard=False, **groups) == (False, [group])
    assert made(relative_margin=0.1, **groups) == (True, [group, equal])
    assert made(absolute_margin=0.0) == (True, [equal])


def same(one, other):
    return np.array_equal(one.rows, other.rows) and one.metadata.metrics == other.metadata.metrics


@pytest.mark.parametrize("planner", GUARDED)
def test_data_without_equal_rows_is_planned_as_ever(make, planner):
    given = {"planner": planner, "device": "cpu", "batch_size": 8, "seed": 3}
    guarded = plan(make(90), relative_margin=None, **given)
    assert same(guarded, plan(make(90), guard=False, **given))


def test_the_golden_plan_is_that_without_a_guard():
    """Some of the pairs have equal rows, so a guard changes their plan."""
    embeddings = batchplan.load_embeddings(SAMPLE)
    unguarded = plan(embeddings, planner="gcbs", device="cpu", guard=False)
    assert unguarded.metadata.metrics["edges"] == 4192
    guarded = plan(embeddings, planner="gcbs", device="cpu")
    assert guarded.metadata.metrics["edges"] < 4192


@pytest.mark.parametrize("planner", GUARDED)
def test_threads_do_not_matter(use_threads, make, planner):
    embeddings, found = make(700), []
    for count in (1, 2, 3):
        use_threads(count)
        found.append(
            plan(embeddings, planner=planner, device="cpu", batch_size=8, relative_margin=0.2)
        )
    assert same(*found[:2])
    assert same(*found[1:])


def within(made, groups):
    """Pairs of one group that share a batch."""
    pairs = 0
    for batch in made.batches():
        counts = np.unique(groups[batch][groups[batch] >= 0], return_counts=True)[1]
        pairs += int((counts * (counts - 1)).sum())
    return pairs


@pytest.mark.parametrize("planner", [name for name in GUARDED if name not in RANDOM])
def test_groups_that_would_be_batches_fall_apart(planted, planner, tmp_path):
    """Without a guard every cluster is a batch; with it no link is left inside one."""
    embeddings, labels = planted(20, 16)
    table = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"cluster": labels}), table)
    # What lets a batch have all rows of a cluster.
    reach = {
        "partition": {"neighbors": 15, "mega_batches": 1},
        "chain": {"space_rows": 320},
        "rwr": {"neighbors": 15, "coverage": "partition"},
    }.get(planner, {"neighbors": 15})
    chosen = {"batch_size": 16, "device": "cpu", **reach}
    groups = {"group_column": "cluster", "label_table": str(table)}
    before = plan(embeddings, planner=planner, **chosen, guard=False)
    after = plan(embeddings, planner=planner, **chosen, **groups, guard=False)
    assert within(before, labels) == 320 * 15
    assert within(after, labels) < 320 * 15 / 4
    assert sorted(after.rows) == list(range(320))


NOTHING = {"device": "cpu", "batch_size": 8, "absolute_margin": 4.0}  # no cosine is below p - 4


def test_gcbs_without_any_edge(make):
    made = plan(make(90), planner="gcbs", **NOTHING)
    assert made.metadata.metrics["edges"] == 0
    assert sorted(made.rows) == list(range(90))


@pytest.mark.parametrize("walk", ["rwr", "rw", "bfs"])
@pytest.mark.parametrize(("coverage", "candidates"), [("partition", 40), ("independent", 89)])
def test_rwr_without_any_neighbour(make, walk, coverage, candidates):
    ways = {"walk": walk, "coverage": coverage}
    made = plan(make(90), planner="rwr", candidate_rows=candidates, **ways, **NOTHING)
    assert all(len(set(batch.tolist())) == len(batch) for batch in made.batches())
    if coverage == "partition":
        assert sorted(made.rows) == list(range(90))


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])


@pytest.fixture(scope="module")
def unguarded(some):
    """Of each planner, its plan of these data without a guard."""
    data = batchplan.load_embeddings(some)
    return {name: plan(data, planner=name, device="cpu", guard=False) for name in GUARDED}


GROUPS = ["--group-column", "group"]
LIMITS = [
    ["--relative-margin", 0.1],
    ["--max-score", 0.5],
    ["--absolute-margin", 0.05],
    ["--no-guard", *GROUPS, "--label-table", "{data}"],
]


@pytest.mark.parametrize(
    ("planner", "words"),
    [*product(GUARDED, (GROUPS, ["--no-guard"])), *zip(GUARDED, cycle(LIMITS), strict=False)],
)
def test_command_line(planner, words, some, unguarded, tmp_path):
    out = tmp_path / "plan.npy"
    given = [some if word == "{data}" else word for word in words]
    result = run(planner, some, *given, "-o", out, "--json")
    assert result.exit_code == 0, result.output
    made = Plan.load(out)
    assert made.metadata.partitions_rows == (planner != "rwr")
    assert made.metadata.options["guard"] == ("--no-guard" not in words)
    assert same(made, unguarded[planner]) == (words == ["--no-guard"])


def test_command_line_refuses(tmp_path):
    out = ["-o", tmp_path / "plan.npy"]
    both = run("gcbs", SAMPLE, "--relative-margin", 0.1, "--absolute-margin", 0.1, *out)
    assert both.exit_code == 2
    assert "leave out one of the two" in both.output
    assert run("rwr", SAMPLE, "--absolute-margin", -1, *out).exit_code == 2
    assert run("rwr", SAMPLE, "--group-column", "none", *out).exit_code == 3
