"""Tables of negatives: checked when made and when loaded, the same bytes for the same table."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError, Negatives, Plan
from batchplan.plans import Batching, PlanMetadata, is_plan, negatives
from batchplan.plans.negatives import is_negatives

METADATA = PlanMetadata(
    planner="scns", seed=3, batch_size=2, num_rows=5, partitions_rows=False, fingerprint="b2:0"
)

LISTS = pa.list_(pa.int64(), 2)
DRAWN = {
    "probabilities": [[0.5, 0.25], [1, 0.0], [0.1, 0.2]],
    "mixup": [[0.5, 0], [1, 0.3], [0.7, 0.2]],
}


def table(**changes):
    parts = {
        "anchors": [0, 1, 4],
        "negatives": [[1, 2], [0, 4], [3, 2]],
        "metadata": METADATA,
    }
    return Negatives(**parts | changes)


@pytest.mark.parametrize("drawn", [{}, DRAWN])
@pytest.mark.parametrize("group", [2, 100])
def test_round_trip(tmp_path, monkeypatch, group, drawn):
    monkeypatch.setattr(negatives, "_ROW_GROUP", group)
    made = table(**drawn)
    made.save(tmp_path / "a.parquet")
    made.save(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    loaded = Negatives.load(tmp_path / "a.parquet")
    assert loaded.metadata == made.metadata
    for name in ("anchors", "negatives", *drawn):
        one, other = getattr(made, name), getattr(loaded, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
        assert not other.flags.writeable
    assert (len(loaded), loaded.per_anchor) == (3, 2)
    assert is_negatives(tmp_path / "a.parquet")
    assert not is_plan(tmp_path / "a.parquet")


def test_columns(tmp_path):
    table().save(tmp_path / "a.parquet", ids=np.array(list("abcde")))
    found = pq.read_table(tmp_path / "a.parquet")
    assert found["row"].type == pa.int64()
    assert found["negatives"].type == pa.list_(pa.int64(), 2)
    assert found["negatives"].to_pylist() == [[1, 2], [0, 4], [3, 2]]
    assert found["id"].to_pylist() == ["a", "b", "e"]
    assert json.loads(found.schema.metadata[b"batchplan-negatives"])["planner"] == "scns"
    with pytest.raises(InputError, match="ids: got 2, expected one for each of 5 rows"):
        table().save(tmp_path / "b.parquet", ids=["a", "b"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"negatives": [[1, 2], [1, 4], [3, 2]]}, "row 1 is its own negative"),
        ({"negatives": [[1, 2], [0, 4], [2, 2]]}, "row 4 has a negative twice"),
        ({"negatives": [[1, 2], [0, 5], [3, 2]]}, "1 row numbers outside 0 to 4"),
        ({"anchors": [0, 1, 1]}, "an anchor occurs twice"),
        ({"anchors": [0, 1]}, r"got shape \(3, 2\) for 2 anchors"),
        ({"negatives": [[], [], []]}, r"got shape \(3, 0\)"),
        ({"probabilities": [[0.5, 0.2], [1, 1.5], [0, 0]]}, "probabilities: expected a number"),
        ({"probabilities": [[0.5], [1], [0]]}, "probabilities: expected a number"),
        ({"mixup": [[0.5, np.nan], [1, 1], [0, 0]]}, "mixup: expected a number"),
    ],
)
def test_checked_when_made(changes, says):
    with pytest.raises(InputError, match=says):
        table(**changes)


def test_paths(tmp_path):
    made = table()
    for name in ("a.npy", "-", "a"):
        with pytest.raises(InputError, match=r"needs the suffix \.parquet.*--as-batches"):
            made.save(tmp_path / name if name != "-" else name)
    made.save(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="exists already"):
        made.save(tmp_path / "a.parquet")
    made.save(tmp_path / "a.parquet", force=True)


def rewrite(path, **columns):
    found = pq.read_table(path)
    for name, values in columns.items():
        place = found.schema.get_field_index(name)
        found = found.remove_column(place)
        if values is not None:
            found = found.add_column(place, name, values)
    pq.write_table(found, path)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"negatives": None}, "got row int64, .*expected the columns row int64 and negatives"),
        ({"negatives": pa.array([[1], [0, 4, 2], [3, 2]])}, "negatives list<.*, expected"),
        ({"negatives": pa.array([[1, 2], None, [3, 2]], LISTS)}, "got nulls"),
        ({"negatives": pa.array([[1, 2], [0, None], [3, 2]], LISTS)}, "got nulls"),
        ({"negatives": pa.array([1, 2, 3])}, "negatives int64, .*expected"),
        (
            {"negatives": pa.array([[1.0, 2], [0, 4], [3, 2]], pa.list_(pa.float64(), 2))},
            "negatives fixed_size_list<.*double>.*, expected",
        ),
        ({"row": pa.array([0, None, 4])}, "got nulls"),
        ({"row": pa.array([0, 1, 3])}, "row 3 is its own negative"),
        ({"row": pa.array([1, 2, 4])}, "own negative|digest"),
        ({"negatives": pa.array([[2, 1], [0, 4], [3, 2]], LISTS)}, "the digest differs"),
        ({"mixup": None}, "the digest differs"),
        ({"mixup": pa.array([[0.5, None], [1, 1], [0, 0]], pa.list_(pa.float32(), 2))}, "nulls"),
        ({"mixup": pa.array([1.0, 2, 3])}, "mixup double, expected"),
    ],
)
def test_edited_files(tmp_path, columns, says):
    path = tmp_path / "a.parquet"
    table(**DRAWN).save(path)
    rewrite(path, **columns)
    with pytest.raises(InputError, match=says) as error:
        Negatives.load(path)
    assert "\n" not in str(error.value)


def test_other_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Negatives.load(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        Negatives.load(tmp_path / "bad.parquet")
    plan = Plan.cut(range(5), Batching(2), num_rows=5)
    plan.save(tmp_path / "plan.parquet")
    with pytest.raises(InputError, match="is not a table of negatives"):
        Negatives.load(tmp_path / "plan.parquet")
    for name in ("none.parquet", "bad.parquet", "plan.parquet"):
        assert not is_negatives(tmp_path / name)


def test_require_match():
    made = table()
    made.require_match(5, "b2:0")
    made.require_match(5, None)
    replace(made, metadata=replace(METADATA, fingerprint=None)).require_match(5, "b2:1")
    with pytest.raises(InputError, match="negatives: made for 5 rows, got data of 6"):
        made.require_match(6, "b2:0")
    with pytest.raises(
        InputError, match="negatives: made for data with fingerprint b2:0, got b2:1"
    ):
        made.require_match(5, "b2:1")
