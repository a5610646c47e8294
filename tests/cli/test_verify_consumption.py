"""The command `verify-consumption`, as a user runs it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.plans import Plan
from batchplan.plans.batching import Batching


@pytest.fixture
def planned(npy, done):
    """plan.npy for two devices, and a trace that follows it."""
    done("random", *npy, "-b", 8, "--world-size", 2, "-q")
    trace([batches()[rank::2] for rank in range(2)])
    return ["verify-consumption", "plan.npy"]


def batches():
    return [batch.tolist() for batch in Plan.load("plan.npy").batches()]


def trace(parts, name="trace"):
    Path(name).mkdir(exist_ok=True)
    for rank, own in enumerate(parts):
        lines = [{"start": {"rank": rank, "world_size": len(parts)}}]
        lines += [{"epoch": 0, "step": step, "rows": rows} for step, rows in enumerate(own)]
        lines.append({"epoch": 0, "end": len(own)})
        Path(name, f"trace.{rank}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines))


def test_exact(planned, done):
    result = done(*planned, "--trace", "trace")
    assert result.output == "exact: 6 steps saw the rows of the plan (1 epoch, 2 ranks)\n"


def test_a_cause(planned, run):
    trace([batches()] * 2)
    result = run(*planned, "--trace", "trace")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "not exact: 11 of 12 steps differ or are missing (1 epoch, 2 ranks); 6 of 6 batches of "
        "the plan are intact"
    )
    assert lines[1] == "cause     the whole plan on every rank (epoch 0)"
    assert lines[2] == "          Every rank trained on all batches."
    assert lines[4].startswith("mend      pass rank and world_size to PlanBatchSampler")
    assert lines[5] == "first     epoch 0, step 0, rank 1"
    assert lines[6] == f"expected  {' '.join(map(str, batches()[1]))}"
    assert lines[7] == f"seen      {' '.join(map(str, batches()[0]))}"


def test_json(planned, run, done):
    document = json.loads(done(*planned, "--trace", "trace", "--json").stdout)
    assert (document["exact"], document["causes"], document["first"]) == (True, [], None)
    trace([batches()[rank::2][:-1] for rank in range(2)])
    result = run(*planned, "--trace", "trace", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    (cause,) = document["causes"]
    assert (cause["name"], cause["epochs"]) == ("tail dropped", [0])
    assert cause["detail"] == "16 rows of the last step"
    assert document["first"]["expected"] == batches()[4]
    assert (document["first"]["step"], document["first"]["seen"]) == (2, None)
    assert (document["steps"], document["wrong_steps"], document["intact_batches"]) == (6, 2, 4)


def test_plans_of_epochs(npy, planned, done, run, refused):
    Path("plans").mkdir()
    for epoch in (2, 10):
        done("random", *npy, "-b", 8, "--seed", epoch, "-o", f"plans/plan-{epoch:04d}.npy", "-q")
    Path("long").mkdir()
    lines = [{"start": {"rank": 0, "world_size": 1}}]
    for epoch in range(1, 12):
        path = f"plans/plan-{10 if epoch > 9 else 2:04d}.npy"
        lines += [
            {"epoch": epoch, "step": step, "rows": batch.tolist()}
            for step, batch in enumerate(Plan.load(path).batches())
        ]
    Path("long/trace.0.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    Path("plans/plan-0011.error").write_text("rank 0 failed")  # as `EpochPlans` leaves one
    for plans in (["plans"], sorted(map(str, Path("plans").glob("*.npy")))):
        shown = done("verify-consumption", *plans, "--trace", "long").stdout.splitlines()
        assert shown[0] == "exact: 60 steps saw the rows of the plan (10 epochs, 1 rank)"
        assert shown[1] == "not compared  epochs without a plan: 1"
    assert run("verify-consumption", "plans", "--trace", "long", "--epochs", 13).exit_code == 1
    Path("empty").mkdir()
    refused("verify-consumption", "empty", "--trace", "trace", parts=["empty", "plan-0000.npz"])


def test_numbers_that_no_training_has(planned, refused):
    """Status 1 would say that the training saw other batches."""
    for rows in ([-1, *batches()[4][1:]], [2**62, *batches()[4][1:]]):
        trace([[batches()[0], batches()[2], rows], batches()[1::2]])
        refused(*planned, "--trace", "trace", parts=["trace/trace.0.jsonl: line 4", "rows: got"])
    trace([batches()[rank::2] for rank in range(2)])
    for place in ({"epoch": 100_000, "step": 0}, {"epoch": 1, "step": 2**28 - 1}):
        with open("trace/trace.1.jsonl", "a") as stream:
            stream.write(json.dumps({**place, "rows": batches()[0]}) + "\n")
        refused(*planned, "--trace", "trace", parts=["trace.1.jsonl: line 6", "a number from 0 to"])
        trace([batches()[rank::2] for rank in range(2)])


def test_refusals(planned, run, refused):
    result = run(*planned)
    assert result.exit_code == 2
    assert "Missing option '--trace'" in result.output
    refused("verify-consumption", "nothing.npy", "--trace", "trace", parts=["no such file"])
    refused(*planned, "--trace", "nothing", parts=["nothing", "no such file or folder"])


@pytest.mark.parametrize("scope", ["device", "global"])
def test_known_answers_that_met(npy, run, done, scope):
    """The plan keeps them apart; steps with other rows let them meet."""
    ids = pa.table({"q": [row // 2 for row in range(48)], "d": range(48)})
    pq.write_table(ids, "ids.parquet")
    named = ["--anchor-id", "q", "--positive-id", "d", "--label-table", "ids.parquet"]
    split = ["--world-size", 2, "--scope", scope]
    done("random", *npy, "-b", 8 if scope == "device" else 4, *split, *named, "-q")
    command = ["verify-consumption", "plan.npy", "--trace", "trace"]
    parts = [batches()[rank::2] for rank in range(2)]
    if scope == "global":
        parts = [[batch[rank * 4 :][:4] for batch in batches()] for rank in range(2)]
    trace(parts)
    assert done(*command).output.splitlines()[1] == (
        "known answers  0 of 336 trained negatives, 0 of 336 planned"
    )
    # Rows 2q and 2q + 1 answer each other's anchor, and are in one batch now.
    rows = list(range(48))
    steps = [rows[at : at + 4] for at in range(0, 48, 4)] if scope == "global" else batches()
    trace(
        [steps[rank::2] for rank in range(2)]
        if scope == "global"
        else [[rows[at : at + 8] for at in range(rank * 8, 48, 16)] for rank in range(2)]
    )
    result = run(*command, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["known_answers"] == {
        "trained": 48, "planned": 0, "trained_negatives": 336, "planned_negatives": 336,
        "epoch": 0, "row": 0, "other": 1,
    }  # fmt: skip
    assert json.loads(result.stdout)["not_counted"] == ""
    assert "such as row 1 for row 0 in epoch 0" in run(*command).stdout


def test_ids_that_cannot_be_read(npy, run, done, refused):
    """A lost table of ids does not end the comparison of the steps; a given one must be there."""
    pq.write_table(pa.table({"q": [row // 2 for row in range(48)]}), "ids.parquet")
    done("random", *npy, "-b", 8, "--anchor-id", "q", "--label-table", "ids.parquet", "-q")
    Path("ids.parquet").rename("moved.parquet")
    trace([batches()])
    command = ["verify-consumption", "plan.npy", "--trace", "trace"]
    assert "known answers  not counted: ids.parquet: " in done(*command).output
    moved = done(*command, "--label-table", "moved.parquet").output
    assert "known answers  0 of 336 trained negatives" in moved
    assert "ids.parquet" in refused(*command, "--label-table", "ids.parquet")


def test_a_list_of_answers_that_moved(npy, run, done, refused):
    """Its new path may be given, alone or with that of the ids."""
    pq.write_table(pa.table({"q": range(48), "d": range(48)}), "ids.parquet")
    answers = [(row, row ^ 1) for row in range(48)]  # documents 2k and 2k + 1 answer both anchors
    Path("qrels.tsv").write_text("".join(f"{q}\t{d}\t1\n" for q, d in answers))
    named = ["--anchor-id", "q", "--positive-id", "d", "--label-table", "ids.parquet"]
    done("random", *npy, "-b", 8, *named, "--known", "qrels.tsv", "-q")
    rows = list(range(48))
    trace([[rows[at : at + 8] for at in range(0, 48, 8)]])
    command = ["verify-consumption", "plan.npy", "--trace", "trace"]
    counted = "known answers  48 of 336 trained negatives, 0 of 336 planned"
    assert counted in run(*command).stdout
    Path("qrels.tsv").rename("moved.tsv")
    lost = "qrels.tsv: no such file; give the list with --known"
    assert f"not counted: {lost}" in " ".join(run(*command).stdout.split())
    assert json.loads(run(*command, "--json").stdout)["not_counted"] == lost
    assert counted in run(*command, "--known", "moved.tsv").stdout
    Path("ids.parquet").rename("moved.parquet")
    both = ["--label-table", "moved.parquet", "--known", "moved.tsv"]
    assert counted in run(*command, *both).stdout
    refused(
        *command, *both[2:], parts=["ids.parquet: no such file; give the ids with --label-table"]
    )
    refused(*command, *both[:3], "qrels.tsv", parts=["qrels.tsv", "no such file"])
    refused(*command, *both[:3], "https://a.b/qrels.tsv", parts=["is a URL, expected a path"])


def test_ids_in_the_files_of_the_data(done, tmp_path):
    """Plans of a file with ids name no table; the file itself is one."""
    rng = np.random.default_rng(0)
    sides = {side: [*rng.normal(size=(48, 4)).astype(np.float32)] for side in "xy"}
    pq.write_table(pa.table({**sides, "q": [row // 2 for row in range(48)]}), "data.parquet")
    done("random", "data.parquet", "-b", 8, "--anchor-id", "q", "-q")
    trace([batches()])
    command = ["verify-consumption", "plan.npy", "--trace", "trace"]
    assert "give it with --label-table" in done(*command).output
    assert "0 of 336 trained" in done(*command, "--label-table", "data.parquet").output


def test_a_table_in_another_order(parquet, run, done, refused):
    """The ids that were planned tell; they may be in another column, or not compared."""
    table = pq.read_table(parquet).append_column("q", pa.array([row // 2 for row in range(48)]))
    pq.write_table(table, parquet)
    done("random", parquet, "-b", 8, "--anchor-id", "q", "-q")
    trace([batches()])
    pq.write_table(table[::-1], "other.parquet")
    pq.write_table(table[::-1].rename_columns(["key", *table.column_names[1:]]), "key.parquet")
    command = ["verify-consumption", "plan.npy", "--trace", "trace", "--label-table"]
    counted = "known answers  0 of 336 trained negatives, 0 of 336 planned"
    assert counted in done(*command, parquet).output
    wrong = "other.parquet: got other ids than were planned, or these in another order"
    refused(*command, "other.parquet", parts=[wrong])
    refused(*command, "key.parquet", "--id-column", "key", parts=["key.parquet: got other ids"])
    for read in (["other.parquet", "--id-column", ""], ["key.parquet"]):
        assert "known answers" in done(*command, *read).output


@pytest.mark.parametrize("options", [
    {"anchor_id": 3},
    {"anchor_id": "q", "label_table": ["ids.parquet"]},
    {"anchor_id": "q", "label_table": "https://example.org/ids.parquet"},
    {"anchor_id": "q", "label_table": "ids.parquet"},
])  # fmt: skip
def test_options_that_anybody_wrote(options, done):
    """They end no comparison, and claimed rows take no memory."""
    pq.write_table(pa.table({"q": [1, 2]}), "ids.parquet")
    rows = np.arange(48)
    metadata = Plan.cut(rows, Batching(batch_size=8), num_rows=48).metadata
    metadata = replace(metadata, options=options, num_rows=1 << 61, partitions_rows=False)
    Plan(rows, np.arange(0, 49, 8), metadata).save("plan.npy")
    trace([batches()])
    found = done("verify-consumption", "plan.npy", "--trace", "trace").output
    assert "known answers  not counted: " in found


def test_rows_beyond_the_data_answer_nothing(npy, run, done):
    pq.write_table(pa.table({"q": [row // 2 for row in range(48)]}), "ids.parquet")
    done("random", *npy, "-b", 8, "--anchor-id", "q", "--label-table", "ids.parquet", "-q")
    trace([[[0, 1, 1000, 48], *batches()[1:]]])
    found = json.loads(run("verify-consumption", "plan.npy", "--trace", "trace", "--json").stdout)
    assert (found["known_answers"]["trained"], found["known_answers"]["row"]) == (2, 0)


def test_joined_plans_of_other_columns(npy, done, refused):
    """One table has one column of ids; a list of answers may be joined."""
    columns = {"q": range(48), "question": range(48), "d": range(48)}
    pq.write_table(pa.table(columns), "ids.parquet")
    for name, column in (("a", "q"), ("b", "question"), ("c", "q")):
        Path(f"{name}.tsv").write_text("1\t2\t1\n")
        named = ["--anchor-id", column, "--positive-id", "d", "--known", f"{name}.tsv"]
        planned = ["random", *npy, "-b", 8, "--label-table", "ids.parquet", *named]
        done(*planned, "-q", "-o", f"{name}.npy")
    pq.write_table(pa.table({name: [*range(96)] for name in columns}), "all.parquet")
    for name in "bc":
        done("concat", "a.npy", f"{name}.npy", "-fo", "plan.npy")
        trace([batches()])
        command = ["verify-consumption", "plan.npy", "--trace", "trace"]
        moved = ["--label-table", "all.parquet"]
        if name == "b":
            several = "the plans that were joined have several --anchor-id (q, question), expected"
            assert f"not counted: {several}" in " ".join(done(*command).output.split())
            refused(*command, *moved, parts=[several])
        else:
            refused(*command, *moved, parts=["several --known (a.tsv, c.tsv)", "with --known"])
            assert "0 of 672 planned" in done(*command, *moved, "--known", "a.tsv").output


def test_ids_that_no_plan_names(npy, done, refused):
    """Files that cannot be used are refused, and plans of some epochs only are told of."""
    ids = pa.table({"q": [row // 2 for row in range(48)], "d": range(48)})
    pq.write_table(ids, "ids.parquet")
    done("random", *npy, "-b", 8, "-q", "-o", "none.npy")
    named = ["--anchor-id", "q", "--label-table", "ids.parquet"]
    done("random", *npy, "-b", 8, *named, "-q", "-o", "named.npy")
    Path("trace").mkdir()
    lines = [{"start": {"rank": 0, "world_size": 1}}]
    for epoch, path in enumerate(("none.npy", "named.npy")):
        steps = enumerate(Plan.load(path).batches())
        lines += [{"epoch": epoch, "step": s, "rows": rows.tolist()} for s, rows in steps]
    Path("trace/trace.0.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    command = ["verify-consumption", "none.npy", "named.npy", "--trace", "trace"]
    unnamed = "the plan of epoch 0 names no ids"
    assert f"known answers  not counted: {unnamed}" in done(*command).output
    refused(*command, "--label-table", "ids.parquet", parts=[unnamed])
    trace([[rows.tolist() for rows in Plan.load("none.npy").batches()]], "first")
    alone = ["verify-consumption", "none.npy", "--trace", "first"]
    assert "known answers" not in done(*alone).output
    for option in ("--label-table", "--known"):
        refused(*alone, option, "ids.parquet", parts=[unnamed])


def test_a_column_of_ids_that_is_not_there(parquet, done, refused):
    """A named column must be compared."""
    table = pq.read_table(parquet).append_column("q", pa.array([row // 2 for row in range(48)]))
    pq.write_table(table, parquet)
    pq.write_table(table.rename_columns(["key", *table.column_names[1:]]), "key.parquet")
    done("random", parquet, "-b", 8, "--anchor-id", "q", "-q")
    trace([batches()])
    command = ["verify-consumption", "plan.npy", "--trace", "trace", "--label-table"]
    for read in (parquet, "key.parquet"):
        refused(*command, read, "--id-column", "kye", parts=[f"{read}: column 'kye': there is no"])
    done("random", parquet, "-b", 8, "--anchor-id", "q", "--id-column", "", "-qf")
    trace([batches()])
    assert "known answers" in done(*command, "key.parquet").output
    refused(
        *command, "key.parquet", "--id-column", "key",
        parts=["id column: got 'key', but the plan has no row ids"],
    )  # fmt: skip
