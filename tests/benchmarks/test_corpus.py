"""The comparison of files with other libraries, on a few files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks import corpus

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


def test_files_are_read_or_refused(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "a.npz", x=X, n=np.arange(3))
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    table = pa.table({"id": range(20), "x": X.tolist(), "s": ["a"] * 20})
    pq.write_table(table, tmp_path / "a.parq")
    counts, wrong = corpus.run(tmp_path)
    assert not wrong
    assert dict(counts) == {
        "files": 4, ".npy read": 1, ".npz read": 1, ".npy refused": 1, ".parquet read": 1,
        "columns of vectors": 3, "columns of ids": 1, "columns of labels": 2,
        "unreadable for the others": 1,
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.npy", "a.npz", "a.parq", "b.npy"
    ]  # fmt: skip


def test_what_is_wrong():
    right = {"vectors": {"x": "(2, 2) 1"}, "labels": {}, "ids": "i"}
    good = {"file": ["(2, 2) 1"], "vectors": {"x": ["(2, 2) 1"]}, "ids": {"ids": "i"}}
    assert not corpus.faults(right, good)
    for change, found in (
        ({"vectors": {"x": ["(2, 2) 2"]}}, "expected (2, 2) 1"),
        ({"vectors": {"x": {"refused": "a: no"}}}, "expected (2, 2) 1"),
        ({"file": ["(2, 2) 2"]}, "expected some of"),
        ({"file": {"refused": "a: the file is damaged"}}, "called damaged"),
        ({"file": {"refused": "a" * 501}}, "501 characters"),
        ({"file": {"raised": "KeyError: 1"}}, "KeyError"),
        ({"ids": {"ids": "j"}}, "other ids"),
    ):
        assert found in " ".join(corpus.faults(right, good | change))
    assert corpus.faults({}, {"raised": "no end within 60 s"})
