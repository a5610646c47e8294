"""The command `concat`, as a user runs it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.plans import Plan


def test_shards_that_were_planned_alone(npy, done, run):
    """The plan of both fits the data of both, and reads as any."""
    done("random", *npy, "-b", 8, "-o", "a.npy")
    done("gcbs", *npy, "-b", 8, "-o", "b.npz")
    shown = done("concat", "a.npy", "b.npz", "-o", "all.npy", "--seed", 2).stderr
    assert shown == "all.npy: 12 batches of 96 rows\n"
    np.save("x2.npy", np.concatenate([np.load("x.npy")] * 2))
    np.save("y2.npy", np.concatenate([np.load("y.npy")] * 2))
    done("evaluate", "all.npy", "x2.npy", "--pair", "y2.npy")
    done("concat", "a.npy", "b.npz", "-o", "planned.npy", "--batch-order", "planned")
    rows = [Plan.load(name).rows for name in ("a.npy", "b.npz")]
    assert np.array_equal(Plan.load("planned.npy").rows, np.concatenate([rows[0], rows[1] + 48]))


def test_ids_of_the_parts_are_kept(done, refused):
    rows = {"x": np.eye(8, 4).tolist(), "y": np.eye(8, 4, 1).tolist()}
    for name in "ab":
        texts = [f"{name}{row}" for row in range(8)]
        pq.write_table(pa.table({"id": texts, "text": texts, **rows}), f"{name}.parquet")
        tail = ["--tail", "drop", "-b", 3, "--id-column", "id"]
        done("random", f"{name}.parquet", *tail, "-o", f"plan-{name}.parquet", "--no-guard")
        done("random", f"{name}.parquet", *tail, "-o", f"plan-{name}.npy", "--no-guard")
    done("concat", "plan-a.parquet", "plan-b.parquet", "-o", "all.parquet")
    table = pq.read_table("all.parquet")
    expected = [f"{'ab'[row // 8]}{row % 8}" for row in table["row"].to_pylist()]
    assert table["id"].to_pylist() == expected
    done("materialize", "all.parquet", "a.parquet", "b.parquet", "-o", "out", "--column", "text")
    wrong = ["all.parquet", "b.parquet", "a.parquet", "-o", "out", "-f", "--column", "text"]
    refused(
        "materialize",
        *wrong,
        parts=["got the ids of the plan in another order, first at b.parquet"],
    )
    done("concat", "plan-a.parquet", "plan-b.npy", "-o", "some.parquet")
    assert pq.read_schema("some.parquet").names == ["batch", "row"]


def test_ids_of_parts_tell_their_order(done, refused):
    """Also of plans without ids of their own, and of a joined plan that is joined again."""
    sides = {"x": (1 + np.eye(8, 4)).tolist(), "y": (1 + np.eye(8, 4, 1)).tolist()}
    for name in "abc":
        table = pa.table({"id": [f"{name}{row}" for row in range(8)], **sides})
        pq.write_table(table, f"{name}.parquet")
        done("random", f"{name}.parquet", "-b", 4, "-o", f"{name}.npy", "--no-guard", "-q")
    done("concat", "a.npy", "b.npy", "-o", "ab.npy")
    done("concat", "ab.npy", "c.npy", "-o", "all.npy")
    files = ["a.parquet", "b.parquet", "c.parquet"]
    kept = ["--no-guard", "--passes", 0, "-q"]
    done("refine", "all.npy", *files, *kept)
    done("materialize", "all.npy", *files, "-o", "out")
    wrong = "got other ids than were planned, or these in another order"
    refused("refine", "all.npy", *files[::-1], *kept, "-f", parts=[wrong])
    done("evaluate", "all.npy", *files)
    refused("evaluate", "all.npy", *files[::-1], parts=[wrong])
    refused("materialize", "all.npy", *files[::-1], "-o", "new", parts=[wrong])
    refused("materialize", "refined.npy", *files[::-1], "-o", "new", parts=[wrong])
    pq.write_table(pa.table(sides), "none.parquet")
    done("random", "none.parquet", "-b", 4, "-o", "none.npy", "--no-guard", "-q")
    done("concat", "a.npy", "none.npy", "-o", "some.npy")
    assert Plan.load("some.npy").metadata.ids_digest is None


def test_refusals(npy, done, refused):
    done("random", *npy, "-b", 8, "-o", "a.npy")
    done("random", *npy, "-b", 6, "-o", "b.npy")
    refused("concat", "a.npy", parts=["plans: got 1, expected at least two to join"])
    refused("concat", "a.npy", "b.npy", parts=["b.npy (part 1): its batch size is 6, but 8 in a."])
    refused("concat", "a.npy", "a.npy", "-o", "a.npy", "-f", parts=["would overwrite"])
    refused("concat", "a.npy", "c.npy", parts=["c.npy: no such file"])


def test_columns_that_keep_rows_apart_are_kept(pairs, done, refused):
    """Refine and evaluate ask for the columns of any part; if parts differ, for those of each."""
    rows = len(pairs[0])
    sides = {name: pa.array(list(side)) for name, side in zip("xy", pairs, strict=True)}
    groups = np.arange(rows) // 2
    table = pa.table({"group": groups, "kind": groups, "q": np.arange(rows), **sides})
    for name, column in (("a", "group"), ("b", "group"), ("c", "kind")):
        pq.write_table(table, f"{name}.parquet")
        planned = ["random", f"{name}.parquet", "-b", 8, "-o", f"{name}.npy"]
        done(*planned, "--group-column", column)
    done("random", "b.parquet", "-b", 8, "-o", "d.npy", "--anchor-id", "q")
    done("concat", "a.npy", "b.npy", "-o", "same.npy")
    done("concat", "a.npy", "c.npy", "-o", "other.npy")
    done("concat", "same.npy", "other.npy", "-o", "four.npy")
    done("concat", "a.npy", "d.npy", "-o", "all.npy")
    stored = {name: Plan.load(f"{name}.npy").metadata.options for name in ("same", "four", "all")}
    assert stored["same"]["group_column"] == "group"
    assert stored["four"]["group_column"] == ["group", "kind"]
    assert (stored["all"]["group_column"], stored["all"]["anchor_id"]) == ("group", "q")
    both = ["a.parquet", "b.parquet", "--passes", 0]
    for name, asked in (
        ("same", "--group-column group"),
        ("other", "--group-column group --group-column kind"),
        ("all", "--group-column group --anchor-id q"),
    ):
        refused("refine", f"{name}.npy", *both, parts=[f"plan: was made with {asked}; name them"])
    done("refine", "same.npy", *both, "--group-column", "group")
    shown = done("evaluate", "all.npy", "a.parquet", "b.parquet", "--group-column", "group").stdout
    assert "--anchor-id q" in shown
