"""Lists of candidates from memory and files, and refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import Candidates, InputError

N, K = 9, 3


@pytest.fixture
def lists():
    """(ids, scores, positive): row i lists the K rows after it."""
    ids = (np.arange(N)[:, None] + 1 + np.arange(K)) % N
    scores = np.tile(np.array([0.9, 0.5, 0.25], np.float32), (N, 1))
    return ids, scores, np.linspace(0.5, 0.9, N, dtype=np.float32)


def write(path, ids, scores, positive, **more):
    table = {"ids": pa.array(list(map(list, ids))), "scores": pa.array(list(map(list, scores)))}
    pq.write_table(pa.table({**table, "positive": pa.array(positive), **more}), path)
    return path


def same(one, other):
    names = ("indptr", "indices", "scores", "positive", "floors")
    assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    assert one.fingerprint == other.fingerprint


def test_arrays_lists_and_files_are_the_same(lists, tmp_path):
    found = Candidates.from_lists(*lists)
    assert found.num_rows == N
    assert found.indptr.tolist() == list(range(0, N * K + 1, K))
    assert np.array_equal(found.indices.reshape(N, K), lists[0])
    assert (found.floors == 0.25).all()
    same(found, Candidates.from_lists([list(row) for row in lists[0]], list(lists[1]), lists[2]))
    same(found, Candidates.load(write(tmp_path / "a.parquet", *lists)))
    ids, scores, positive = lists
    names = [f"row {i}" for i in range(N)]
    named = [[names[i] for i in row] for row in ids]
    loaded = Candidates.load(
        write(tmp_path / "b.parquet", named, scores, positive, id=pa.array(names))
    )
    same(found, loaded)
    assert loaded.ids.to_pylist() == names
    tens = write(tmp_path / "c.parquet", 10 * ids, scores, positive, id=10 * np.arange(N))
    same(found, Candidates.load(tens))


def test_lists_of_different_lengths_and_own_rows(lists):
    ids = [[1, 0, 2], [2], [0, 1], *([0, 1] for _ in range(N - 3))]
    scores = [[0.9, 0.8, 0.1], [0.5], [0.5, 0.5], *([0.3, 0.2] for _ in range(N - 3))]
    found = Candidates.from_lists(ids, scores, lists[2])
    assert found.indptr.tolist() == [0, 2, 3, 5, *range(7, 7 + 2 * (N - 3), 2)]
    assert found.indices[:5].tolist() == [1, 2, 2, 0, 1]  # row 0 is its own positive
    assert found.floors[:3].tolist() == pytest.approx([0.1, 0.5, 0.5])


def test_some_rows(lists):
    found = Candidates.from_lists(*lists)
    rows = np.array([1, 2, 4, 8])
    some = found.take(rows)
    assert some.indptr.tolist() == [0, 2, 3, 3, 5]
    assert some.indices.tolist() == [1, 2, 2, 0, 1]  # 1 lists 2 and 4, 2 lists 4, 8 lists 1 and 2
    assert np.array_equal(some.floors, found.floors[rows])
    assert np.array_equal(some.positive, found.positive[rows])


def test_long_lists_of_some_rows_are_in_files(lists, monkeypatch):
    found = Candidates.from_lists(*lists)
    expected = found.take(np.arange(5))
    monkeypatch.setattr("batchplan.data.candidates._HELD_BYTES", 0)
    same(found.take(np.arange(5)), expected)


BAD = [
    ("ids", lambda ids: ids + N, "got a row number outside 0 to 8"),
    ("ids", lambda ids: ids - N, "got a row number outside 0 to 8"),
    ("ids", lambda ids: ids[:, [0, 0, 1]], "got a candidate twice"),
    ("scores", lambda scores: scores[:, ::-1].copy(), "got scores that rise"),
    ("scores", lambda scores: scores * np.nan, "got a score that is NaN or infinite"),
    ("scores", lambda scores: scores + np.inf, "got a score that is NaN or infinite"),
    ("positive", lambda positive: positive * np.nan, "got a positive of nan"),
]


@pytest.mark.parametrize(("name", "change", "message"), BAD)
def test_bad_lists(lists, tmp_path, name, change, message):
    parts = dict(zip(("ids", "scores", "positive"), lists, strict=True))
    parts[name] = change(parts[name])
    with pytest.raises(InputError, match=f"^candidates of row 0: {message}"):
        Candidates.from_lists(**parts)
    path = write(tmp_path / "bad.parquet", **parts)
    with pytest.raises(InputError, match=f"bad.parquet row 0: {message}"):
        Candidates.load(path)


def test_the_row_of_a_later_fault_is_named(lists, monkeypatch):
    ids, scores, positive = lists
    ids = ids.copy()
    ids[7, 2] = N
    monkeypatch.setattr("batchplan.data.candidates._AT_ONCE", 2)
    with pytest.raises(InputError, match="candidates of row 7: got a row number outside"):
        Candidates.from_lists(ids, scores, positive)


def test_lists_that_do_not_fit(lists):
    ids, scores, positive = lists
    short = [list(row) for row in ids], [list(row) for row in scores]
    short[0][3], short[1][3] = [], []
    with pytest.raises(InputError, match="row 3: got an empty list"):
        Candidates.from_lists(*short, positive)
    with pytest.raises(InputError, match=r"row 1: got ids of shape \(3,\) and scores of shape"):
        Candidates.from_lists(list(ids), [scores[0], scores[1][:2], *scores[2:]], positive)
    with pytest.raises(InputError, match="got 9 lists of ids, 9 lists of scores and 4 positives"):
        Candidates.from_lists(list(ids), list(scores), positive[:4])
    with pytest.raises(InputError, match="got ids of float64"):
        Candidates.from_lists(ids.astype(float), scores, positive)


def test_bad_files(lists, tmp_path):
    ids, scores, positive = lists
    path = tmp_path / "c.parquet"
    for columns, message in (
        ({"ids": list(ids), "positive": positive}, "column 'scores': there is no such column"),
        (
            {"ids": list(ids), "scores": list(ids), "positive": positive},
            "column 'scores': got list<.*int64>, expected lists of floats",
        ),
        (
            {"ids": list(scores), "scores": list(scores), "positive": positive},
            "got ids of float without a column 'id'",
        ),
        (
            {"ids": [None] * N, "scores": list(scores), "positive": positive},
            "column 'ids': got null",
        ),
        (
            {"ids": [[1, 2]] * N, "scores": [[0.5, None]] * N, "positive": positive},
            "row [01]: got a score that is NaN",
        ),
        (
            {"ids": [["a"]] * N, "scores": [[0.5]] * N, "positive": positive},
            "got ids of string without a column 'id'",
        ),
        (
            {"ids": [["a"]] * N, "scores": [[0.5]] * N, "positive": positive,
             "id": [f"{i}" for i in range(N)]},
            "row 0: got the candidate 'a', which is not in the column 'id'",
        ),
        ({"ids": [[1, 2]] * N, "scores": [[0.5]] * N, "positive": positive},
         "row 0: got 2 ids and 1 scores"),
    ):  # fmt: skip
        pq.write_table(pa.table({name: pa.array(list(one)) for name, one in columns.items()}), path)
        with pytest.raises(InputError, match=message):
            Candidates.load(path)
    np.save(tmp_path / "a.npy", ids)
    with pytest.raises(InputError, match="expected Parquet with ids, scores and positive"):
        Candidates.load(tmp_path / "a.npy")


@pytest.mark.filterwarnings("error")
def test_scores_that_float32_cannot_hold(lists, tmp_path):
    ids, scores, positive = lists
    large = scores.astype(np.float64)
    large[3] = 1e300
    own = positive.astype(np.float64)
    own[4] = 1e300
    for some, pairs, message in (
        (large, positive, "row 3: got a score that is NaN or infinite"),
        (scores, own, "row 4: got a positive of inf"),
    ):
        with pytest.raises(InputError, match=message):
            Candidates.from_lists(ids, some, pairs)
        with pytest.raises(InputError, match=message):
            Candidates.load(write(tmp_path / "c.parquet", ids, some, pairs))
