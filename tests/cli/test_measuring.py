"""evaluate and inspect: tables for people, JSON for programs."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import Plan, evaluate, load_embeddings
from batchplan.quality import verdict_on

SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")
KEYS = """
    num_rows num_batches batch_size partitions_rows temperature similarity loss_train loss_global
    gap loss_random loss_random_std random_z gap_random gap_reduction loss_oracle oracle_share
    hard_negative_recall positive_probability similarity_percentiles similarity_histogram
    guard answers coverage fresh bound_36 bound_37 qap_objective bottleneck edge_recall bandwidth
    positive_probability_random positive_probability_global hardness false_negatives verdict
""".split()  # noqa: SIM905
GUARD_KEYS = """
    reference planned_reference without_groups relative_margin absolute_margin max_score limit_from
    pairs broken false_negatives false_negatives_random by rows_affected loss_train loss_global
    loss_random gap
""".split()  # noqa: SIM905
COVERAGE_KEYS = ["rows_seen", "rows_never_seen", "share_seen", "repeats", "most_repeated"]


@pytest.fixture
def planned(npy, done):
    """plan.npy of x.npy and y.npy; the arguments of evaluate that name all three."""
    done("gcbs", *npy, "-b", 8, "--neighbors", 4, "-q")
    return ["plan.npy", *npy]


def numbers(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, float):
        yield value


def test_evaluate_prints_a_table(planned, done):
    result = done("evaluate", *planned, "--all")
    assert result.stderr == ""
    lines = result.stdout.partition("\n\n")[2].splitlines()
    for name in (
        "loss  ",
        "loss, random batches ",
        "loss, oracle ",
        "loss, all rows ",
        "gap to all rows ",
        "share of the way to the oracle ",
        "gap reduction, all pairs ",
        "against random ",
        "hard negatives in batch ",
        "bounds of the gap ",
        "quadratic assignment ",
        "bottleneck similarity ",
        "largest similarities in batch ",
        "bandwidth ",
        "probability of the positive ",
        "in-batch similarity ",
        "pairs that break the guard ",
        "loss, without them ",
        "hardness ",
        "each row once ",
    ):
        assert sum(line.startswith(name) for line in lines) == 1, name
    short = done("evaluate", *planned).stdout
    assert short.partition("\n\n")[0] == result.stdout.partition("\n\n")[0]
    assert short.endswith("--all shows all figures.\n")


def test_evaluate_starts_with_the_verdict(planned, done):
    lines = done("evaluate", *planned).stdout.splitlines()
    assert lines[0] == "gcbs: 6 batches of 8 over 48 rows, temperature 0.05, cosine"
    first = lines[1 : lines.index("")]
    assert [line[:17].strip() for line in first if not line.startswith("warning")] == [
        "verdict", "hardness", "false negatives", "coverage", "freshness", "guard",
    ]  # fmt: skip
    document = json.loads(done("evaluate", *planned, "--json").stdout)
    guard, said = document["guard"], document["verdict"]
    assert first[0] == f"verdict          {said['sentence']}"
    assert f"{document['hardness']:z.1%} of the gap" in said["sentence"]
    assert (guard["relative_margin"], guard["limit_from"]) == (0.1, "default")
    assert said["guard"] == "relative margin 0.1, the default"


def test_evaluate_uses_the_guard_of_the_plan(npy, done):
    done("gcbs", *npy, "-b", 8, "--max-score", 0.9, "-q")
    given = ["evaluate", "plan.npy", *npy]
    guard = json.loads(done(*given, "--json").stdout)["guard"]
    assert (guard["max_score"], guard["relative_margin"], guard["limit_from"]) == (
        0.9, None, "plans",
    )  # fmt: skip
    assert "guard            max score 0.9, as planned\n" in done(*given).stdout
    assert json.loads(done(*given, "--no-guard", "--json").stdout)["guard"] is None
    own = json.loads(done(*given, "--relative-margin", 0.2, "--json").stdout)["guard"]
    assert (own["relative_margin"], own["max_score"], own["limit_from"]) == (0.2, None, "options")


def test_evaluate_as_json(planned, done):
    result = done("evaluate", *planned, "--json", "--seed", 3)
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert list(document) == KEYS
    assert list(document["hard_negative_recall"]) == ["1", "10"]
    assert list(document["similarity_percentiles"]) == ["1", "5", "25", "50", "75", "95", "99"]
    histogram = document["similarity_histogram"]
    assert {name: len(values) for name, values in histogram.items()} == {
        "edges": 41,
        "plan": 40,
        "random": 40,
    }
    assert document["guard"]["limit_from"] == "default"
    assert list(document["coverage"]) == COVERAGE_KEYS
    assert list(document["coverage"].values()) == [48, 0, 1.0, 0, 1]
    assert all(map(math.isfinite, numbers(document)))
    embeddings = load_embeddings("x.npy", "y.npy")
    found = evaluate(Plan.load("plan.npy"), embeddings, seed=3)
    assert document == {**found.to_dict(), "verdict": verdict_on(found).to_dict()}


def label_table(name="labels.parquet", rows=48):
    """Labels 0, 0, 0, 1, ...; groups of two, of which every fourth row has none."""
    columns = {
        "kind": [f"kind {i // 3}" for i in range(rows)],
        "group": [None if i % 4 == 3 else i // 2 for i in range(rows)],
        "weight": [0.5] * rows,
    }
    pq.write_table(pa.table(columns), name)
    return name


def test_evaluate_counts_false_negatives(npy, done):
    table = label_table()
    Path("p.txt").write_text("\n".join(map(str, range(48))))
    given = ["evaluate", "p.txt", *npy, "-b", 12, "--label-table", table, "--no-guard"]
    # 16 kinds of 3 rows, side by side; 12 groups of 2 rows and 12 of 1
    for column, pairs in (("kind", 16 * 3), ("group", 12)):
        document = json.loads(done(*given, "--group-column", column, "--json").stdout)
        found = document["guard"]
        assert found["by"] == {"similarity": 0, "group": pairs, "duplicate": 0, "known": 0}
        assert found["pairs"] == 264
        assert document["false_negatives"] == pytest.approx(pairs / 264)
        assert found["false_negatives_random"] == pytest.approx(pairs / (48 * 47 / 2))
    shown = done(*given, "--group-column", "kind", "--all").stdout
    assert "48 of 264 (18.2%, 4.26% at random)" in shown


def test_groups_that_a_plan_keeps_apart_are_named_again(npy, done):
    grouped = ["--label-table", label_table(), "--group-column", "group"]
    done("random", *npy, "-b", 8, "--guard", *grouped, "-q")
    done("random", *npy, "-b", 8, "-o", "own.npy", "-q")
    said = "name their column again with --group-column"
    gate = ["--fail-under", "coverage.share_seen=1"]
    for command, more in (("evaluate", []), ("check", gate)):
        assert said in done(command, "plan.npy", *npy, *more).output
        assert said not in done(command, "plan.npy", *npy, *more, *grouped).output
        assert said not in done(command, "own.npy", *npy, *more).output


def test_evaluate_with_a_guard(planned, done):
    table = label_table()
    given = ["evaluate", *planned, "--group-column", "group", "--label-table", table]
    given += ["--relative-margin", 0.1]
    found = json.loads(done(*given, "--json").stdout)["guard"]
    assert list(found) == GUARD_KEYS
    assert (found["relative_margin"], found["max_score"], found["pairs"]) == (0.1, None, 6 * 28)
    assert list(found["by"]) == ["similarity", "group", "duplicate", "known"]
    groups = [-1 if i % 4 == 3 else i // 2 for i in range(48)]
    embeddings = load_embeddings("x.npy", "y.npy")
    same = evaluate(Plan.load("plan.npy"), embeddings, relative_margin=0.1, groups=groups)
    assert found == same.to_dict()["guard"]
    lines = done(*given, "--all").stdout.partition("\n\n")[2].splitlines()
    broken, why, loss = (" ".join(line.split()) for line in lines[-4:-1])
    assert broken.startswith(f"pairs that break the guard {found['broken']} of 168 (")
    assert why.startswith(f"why they break it {found['by']['similarity']} by similarity")
    assert loss == f"loss, without them {found['loss_train']:.4f}"
    assert all(len(line) < 120 for line in lines)


def test_evaluate_with_a_margin(planned, done):
    document = json.loads(done("evaluate", *planned, "--absolute-margin", 0.1, "--json").stdout)
    assert (document["guard"]["relative_margin"], document["guard"]["absolute_margin"]) == (
        None,
        0.1,
    )
    Plan(np.arange(48), np.arange(49), Plan.load("plan.npy").metadata).save("alone.parquet")
    alone = done(
        "evaluate", "alone.parquet", *planned[1:], "--absolute-margin", 0.1, "--all"
    ).stdout
    assert "pairs that break the guard      0 of 0 (undefined, " in alone


def test_a_quiet_evaluation_prints_only_json(planned, done):
    assert done("evaluate", *planned, "-q").stdout == ""
    assert done("evaluate", *planned, "-q", "--all").stdout == ""
    assert json.loads(done("evaluate", *planned, "-q", "--json").stdout)["num_rows"] == 48


def test_two_limits_are_refused(planned, refused):
    said = "relative margin 0.2: given with absolute margin 0.1, expected one limit"
    both = ["--absolute-margin", "0.1", "--relative-margin", "0.2"]
    refused("evaluate", *planned, *both, parts=[said], code=2)


def test_evaluate_finds_groups_in_the_embeddings(parquet, done):
    table = pq.read_table(parquet)
    pq.write_table(table.append_column("kind", pa.array(["one"] * 48)), parquet)
    done("random", parquet, "-b", 8, "-o", "p.parquet", "-q")
    document = json.loads(
        done("evaluate", "p.parquet", parquet, "--group-column", "kind", "--json").stdout
    )
    assert document["guard"]["by"]["group"] == document["guard"]["pairs"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--group-column", "none", "--label-table", "labels.parquet"], "'none': there is no such"),
        (["--group-column", "weight", "--label-table", "labels.parquet"], "got double"),
        (
            ["--group-column", "kind", "--label-table", "short.parquet"],
            "got 47 values, expected 48",
        ),
        (["--group-column", "kind", "--label-table", "missing.parquet"], "missing.parquet"),
        (["--group-column", "kind"], "--label-table"),
        (["--label-table", "labels.parquet"], "without --group-column"),
    ],
)
def test_labels_that_cannot_be_used(options, part, planned, refused):
    label_table()
    label_table("short.parquet", 47)
    code = 2 if part == "without --group-column" else 3
    refused("evaluate", *planned, *options, parts=[part], code=code)


def test_evaluate_says_what_a_sample_leaves_out(npy, done):
    Path("some.jsonl").write_text("[0, 1, 2, 3]\n[0, 1, 4, 5]\n[0, 6, 7, 8]\n")
    lines = done("evaluate", "some.jsonl", *npy, "--all").stdout.splitlines()
    expected = "rows in the plan                9 (18.8%), 3 repeats, none more than 3 times"
    assert lines[-2] == expected
    assert "warning          39 of 48 rows are in no batch" in lines
    document = json.loads(done("evaluate", "some.jsonl", *npy, "--json").stdout)
    assert list(document["coverage"].values()) == [9, 39, 9 / 48, 3, 3]


def test_evaluate_takes_its_options(planned, done):
    options = ["--temperature", 0.5, "--similarity", "dot", "--random-trials", 2]
    document = json.loads(done("evaluate", *planned, *options, "--json").stdout)
    assert (document["temperature"], document["similarity"]) == (0.5, "dot")


def test_evaluate_reads_every_format(planned, npy, done):
    Path("plan.npy").unlink()
    Path("plan.npy.json").unlink()
    documents = []
    for suffix in SUFFIXES:
        done("gcbs", *npy, "-b", 8, "--neighbors", 4, "-o", f"p{suffix}", "-q")
        documents.append(json.loads(done("evaluate", f"p{suffix}", *npy, "--json").stdout))
    assert all(document == documents[0] for document in documents)


def test_evaluate_measures_rows_from_elsewhere(npy, done):
    Path("some.txt").write_text("\n".join(map(str, range(40))))
    text = done("evaluate", "some.txt", *npy, "-b", 8, "--all").stdout
    assert text.startswith("some.txt: 5 batches of 8 over 48 rows")
    assert text.split()[-4:] == ["each", "row", "once", "no"]
    assert "freshness        planned from unknown ones\n" in text
    Path("most.txt").write_text("\n".join(map(str, range(48))))
    document = json.loads(done("evaluate", "most.txt", *npy, "-b", 48, "--json").stdout)
    assert document["num_batches"] == 1
    assert abs(document["gap"]) < 1e-6
    assert "z = +0.0" in done("evaluate", "most.txt", *npy, "-b", 48, "--all").stdout


def test_equal_rows_leave_nothing_to_gain(done):
    np.save("x.npy", np.ones((48, 8), np.float32))
    Path("p.txt").write_text("\n".join(map(str, range(48))))
    text = done("evaluate", "p.txt", "x.npy", "-b", 8, "--all").stdout
    document = json.loads(done("evaluate", "p.txt", "x.npy", "-b", 8, "--json").stdout)
    share = f"{document['oracle_share']:.1%}"
    assert f"share of the way to the oracle  {share}\n" in text
    assert "-0.0" not in text


def test_evaluate_from_parquet(parquet, done):
    done("gcbs", parquet, "-b", 8, "-o", "p.parquet", "-q")
    assert "over 48 rows" in done("evaluate", "p.parquet", parquet).stdout


def test_what_verbose_and_quiet_keep(planned, done):
    for flag in ("-v", "-q", "--verbose", "--quiet"):
        assert ("\nhardness " in done("evaluate", *planned, flag).stdout) == ("v" in flag)
        assert "fingerprint" in done("inspect", *planned[1:], flag).stdout


def test_inspect_embeddings(npy, done):
    result = done("inspect", *npy)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    names = [line[:28].strip() for line in lines]
    assert names == [
        "num rows",
        "dim",
        "paired",
        "dtypes",
        "fingerprint",
        "ids",
        "shards",
        "",
        "length x",
        "length y",
        "positive similarity",
        "random negative similarity",
        "beaten positives",
        "duplicates",
        "several answers",
        "hardest to positive",
        "guards",
        *[""] * 11,
    ]
    values = [line[28:] for line in lines]
    assert values[:4] == ["48", "8", "True", "x: float32  y: float32"]
    assert values[13] == "x: 0  y: 0"
    assert values[16].startswith("0.70 x positive: ")
    assert values[-4].startswith("positive - 0.10: ")
    assert re.match(
        r"score [\d.]+: [\d.]+ rows excluded per row; [\d.]+% of rows affected$", values[-1]
    )
    assert values[6:8] == ["x  48 rows  x.npy", "y  48 rows  y.npy"]
    document = json.loads(done("inspect", *npy, "--json").stdout)
    assert [name.replace("_", " ") for name in document] == [name for name in names if name]
    assert document["fingerprint"] == load_embeddings("x.npy", "y.npy").fingerprint == values[4]
    assert all(map(math.isfinite, numbers(document)))


def test_inspect_parquet(parquet, done):
    document = json.loads(done("inspect", parquet, "--json").stdout)
    assert (document["num_rows"], document["paired"]) == (48, True)
    assert document["ids"] == "large_string"
    one = json.loads(
        done("inspect", parquet, "--x-column", "y", "--y-column", "y", "--json").stdout
    )
    assert one["paired"] is False


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_inspect_plans(suffix, npy, done):
    name = f"p{suffix}"
    done("gcbs", *npy, "-b", 8, "--neighbors", 4, "--seed", 3, "-o", name, "-q")
    document = json.loads(done("inspect", name, "--json").stdout)
    assert document == json.loads(json.dumps(Plan.load(name).metadata.to_dict()))
    text = done("inspect", name).stdout
    assert "planner          gcbs\n" in text
    assert f"fingerprint      {document['fingerprint']}\n" in text
    assert "neighbors: 4" in text


def test_a_plan_with_other_known_answers_than_its_judge(npy, done, run):
    """A file of known answers may be in another folder than when the plan was made."""
    table = pa.table({"q": [row // 2 for row in range(48)], "d": range(48)})
    pq.write_table(table, "ids.parquet")
    Path("a").mkdir()
    for name in ("a/known.tsv", "known.tsv", "other.tsv"):
        Path(name).write_text("query-id\tcorpus-id\tscore\n0\t5\t1\n")
    anchors = ["--anchor-id", "q", "--label-table", "ids.parquet"]
    ids = [*anchors, "--positive-id", "d"]
    done("random", *npy, "-b", 8, *ids, "--known", "a/known.tsv", "-q")
    gate = ["--fail-over", "answers.known=9"]
    for options, missing in (
        ([], "--anchor-id q --positive-id d --known a/known.tsv --label-table ids.parquet"),
        (anchors, "--positive-id d --known a/known.tsv --label-table ids.parquet"),
        (ids, "--known a/known.tsv --label-table ids.parquet"),
        ([*ids, "--known", "other.tsv"], "--known a/known.tsv --label-table ids.parquet"),
        ([*ids, "--known", "known.tsv"], ""),
    ):
        warning = f"the plan was made with {missing}, but known answers are judged without"
        document = json.loads(done("evaluate", "plan.npy", *npy, *options, "--json").stdout)
        assert " ".join(document["answers"]["planned_with"]) == missing
        said = [one for one in document["verdict"]["warnings"] if "known answers" in one]
        assert len(said) == bool(missing)
        assert all(one.startswith(warning) for one in said)
        assert (warning in run("check", "plan.npy", *npy, *options, *gate).stderr) == bool(missing)


def test_a_plan_without_ids_may_be_judged_by_some(npy, done):
    pq.write_table(pa.table({"q": [row // 2 for row in range(48)]}), "ids.parquet")
    done("random", *npy, "-b", 8, "-q")
    named = ["--anchor-id", "q", "--label-table", "ids.parquet"]
    document = json.loads(done("evaluate", "plan.npy", *npy, *named, "--json").stdout)
    assert document["answers"]["planned_with"] == []


@pytest.mark.parametrize("command", ["evaluate", "check", "refine", "report"])
def test_a_label_table_and_a_reference_in_another_order(command, parquet, npy, done, refused):
    """The plan knows the ids of data that have none themselves."""
    table = pq.read_table(parquet).append_column("group", pa.array(np.arange(48) // 2))
    pq.write_table(table[::-1], "other.parquet")
    pq.write_table(table, parquet, row_group_size=20)
    done("random", parquet, "-b", 8, "--group-column", "group", "-q")
    sides = "plan.npy", *npy, "--group-column", "group", "--label-table"
    given = {
        "check": ["--fail-over", "guard.broken=1000"],
        "refine": ["--passes", 0, "--relative-margin", 0.1],
        "evaluate": [],
        "report": ["--random-trials", 2],
    }[command]
    wrong = "other.parquet: got other ids than were planned, or these in another order"
    refused(command, *sides, "other.parquet", *given, parts=[wrong])
    judge = ["--reference", "other.parquet"]
    wrong = "the reference: got other ids than were planned, or these in another order"
    refused(command, *sides, parquet, *given, *judge, parts=[wrong])
    done(command, *sides, parquet, *given)
    forced = ["-f"] * (command in ("refine", "report"))
    done(command, *sides, "other.parquet", *given, *judge, "--id-column", "", *forced)
