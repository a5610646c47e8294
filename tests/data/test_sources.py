"""From paths to shards: order, folders, globs, and what is refused."""

from __future__ import annotations

import os
import shutil
from glob import glob
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from batchplan import plan
from batchplan.data.shards import find_shards, natural_key, order_of
from batchplan.errors import InputError


@pytest.fixture
def touch(tmp_path):
    def make(*names: str) -> list[Path]:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return [tmp_path / name for name in names]

    return make


def of_x(paths, order=None):
    return find_shards(paths, "x", order)


def names(paths):
    return [path.name for path in paths]


def test_natural_order():
    given = ["b10", "b2", "a", "b", "10", "9", "b2c10", "b2c9", "01", "1", "x²3"]
    got = [p.name for p in sorted(map(Path, given), key=natural_key)]
    assert got == ["01", "1", "9", "10", "a", "b", "b2", "b2c9", "b2c10", "b10", "x²3"]


NESTED = ("a/part-2", "a/part-10", "a-1/part-2", "a/b/part-1", "B/x", "a.b/x", "é/x", "a 1/x")


def test_the_two_orders(tmp_path, touch):
    touch("10.npy", "2.npy", "1.npy", ".hidden.npy", "_SUCCESS", "_metadata.parquet", "notes.md")
    (tmp_path / "sub").mkdir()
    assert names(of_x(tmp_path, "natural")) == ["1.npy", "2.npy", "10.npy"]
    assert names(of_x(tmp_path, "lexicographic")) == ["1.npy", "10.npy", "2.npy"]
    for given in (tmp_path, f"{tmp_path}/*"):
        message = refuse(given)
        assert f"x: {tmp_path}/10.npy comes before {tmp_path}/2.npy in lexico" in message
        assert "--shard-order lexicographic or natural (shard_order=)" in message


@pytest.mark.parametrize("given", ["t/**/*.parquet", "t/a"])
def test_lexicographic_is_the_order_of_other_readers(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in NESTED:
        path = Path("t", f"{name}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"name": [str(path)]}), path)
    if given == "t/a":
        shutil.rmtree("t/a/b")
    found = [str(path) for path in of_x(given, "lexicographic")]
    if given != "t/a":
        given = "t"
        assert found == sorted(glob("t/**/*.parquet", recursive=True))
    assert found == ds.dataset(given).to_table()["name"].to_pylist()


def test_an_order_matters_only_where_the_two_differ(tmp_path, touch):
    touch("p/02.npy", "p/10.npy", "q/1.npy", "10/1.npy", "9/1.npy", "10/2.npy")
    assert of_x(tmp_path / "p", "natural") == of_x(tmp_path / "p")
    assert order_of(of_x(tmp_path / "p"), "natural") is None
    found = of_x(f"{tmp_path}/**/1.npy", "natural")
    assert [path.parent.name for path in found] == ["9", "10", "q"]
    assert order_of(found, "natural") == "natural"
    with pytest.raises(InputError, match="shard order: got 'name', expected lexicographic or nat"):
        of_x(tmp_path, "name")


def test_arguments_keep_their_order(tmp_path, touch):
    b, a = touch("b.npy", "a.npy")
    touch("f/2.npy", "f/10.npy")
    found = of_x([b, tmp_path / "f", a], "natural")
    assert names(found) == ["b.npy", "2.npy", "10.npy", "a.npy"]


@pytest.mark.parametrize(
    "hidden", ["_temporary/0", ".ipynb_checkpoints", "_symlink_format_manifest"]
)
def test_hidden_folders_below_a_glob(hidden, tmp_path, touch):
    touch("p/a/1.npy", f"p/a/{hidden}/2.npy", f"p/{hidden}/a/3.npy")
    assert names(of_x(f"{tmp_path}/p/**/*.npy")) == ["1.npy"]
    assert names(of_x(f"{tmp_path}/p/{hidden}/a/*")) == ["3.npy"]  # named by the user
    assert names(of_x(tmp_path / "p" / hidden / "a")) == ["3.npy"]


TABLES = {  # what the tools write next to the files of rows
    "Delta Lake": ("0.parquet", "_delta_log/00000000000000000000.json"),
    "Hudi": ("0.parquet", ".hoodie/hoodie.properties"),
    "Iceberg": ("data/0.parquet", "metadata/00000-8e1c.metadata.json"),
    "Lance": ("data/0101.lance", "_versions/18446744073709551614.manifest"),
}


@pytest.mark.parametrize("mark", ["_delta_log", ".hoodie"])
def test_tables_whose_log_is_empty(mark, tmp_path, touch):
    touch("t/0.parquet")
    (tmp_path / "t" / mark).mkdir()
    assert f"{tmp_path}/t: is a table of " in refuse(f"{tmp_path}/t")


@pytest.mark.parametrize("kind", TABLES)
def test_tables_with_versions(kind, tmp_path, touch):
    file, _ = touch(*(f"t/{name}" for name in TABLES[kind]))
    touch("t/k=1/0.parquet", "other/data/0.parquet", "other/metadata/0.json", "other/_versions/1")
    for given in (
        "t",
        "t/**/*.parquet",
        "t/k=1",
        "t/k*/*",
        f"t/{TABLES[kind][0].rpartition('/')[0]}",
    ):
        message = refuse(f"{tmp_path}/{given}")
        assert f"{tmp_path}/t: is a table of {kind}, whose files also have" in message
        assert "pyarrow.parquet.write_table(" in message
    assert names(of_x(f"{tmp_path}/other/data")) == ["0.parquet"]
    if file.suffix == ".parquet":
        assert of_x(file) == [file]  # named by the user


SPLITS = {
    "data/train-*.parquet": (
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/test-00000-of-00001.parquet",
    ),
    "test.parquet": ("test.parquet", "validation.parquet"),
    "dev_*.npy": ("dev_00.npy", "dev_01.npy", "my-eval 0.npy"),
    "data/en-*.parquet": ("data/en-00000-of-00002.parquet", "data/en-00001-of-00002.parquet",
                     "data/fr-00000-of-00001.parquet"),
    "train/*.parquet": ("train/a.parquet", "train/b.parquet", "valid/c.parquet"),
    "training/*/*.npy": ("training/a/0.npy", "training/b/0.npy", "test/a/0.npy"),
}  # fmt: skip


@pytest.mark.parametrize("works", SPLITS)
def test_several_splits(works, tmp_path, touch):
    files = touch(*SPLITS[works])
    given = f"{tmp_path}/**/*" if files[0].parent != files[-1].parent else str(files[0].parent)
    message = refuse(given)
    assert f"{given}: got files of the splits " in message
    assert works in message
    kept = [file for file in files if file.match(works)]
    assert of_x(f"{tmp_path}/{works}") == kept
    assert len(kept) == len(files) - 1
    assert of_x(files) == files  # named by the user


@pytest.mark.parametrize(
    "same",
    [
        ("train_x.npy", "train_y.npy"),
        ("latest.npy", "trainer.npy"),
        ("b-00000-of-00001.npy", "a-00000-of-00001.npy"),
        ("eval-train-0.npy", "eval-train-1.npy"),
        ("train.npy", "b.npy"),
    ],
)
def test_one_split(same, tmp_path, touch):
    files = touch(*same)
    assert set(of_x(tmp_path)) == set(files)


@pytest.mark.parametrize(
    "other", ["1.npz", "1.parquet", "1.pt", "b.csv", "c.jsonl.gz", "D.FEATHER"]
)
def test_other_data_in_a_folder(other, tmp_path, touch):
    touch("0.npy", other, "README.md", "stats.json", "_SUCCESS", ".0.npy.crc", "0.npy.crc")
    for given in (tmp_path, f"{tmp_path}/*"):
        message = refuse(given)
        assert f"{tmp_path}/0.npy" in message
        assert f"{tmp_path}/{other}" in message
        assert (
            f"expected files of one kind; name those that are meant, such as '{tmp_path}/*.npy'"
            in message
        )
    assert names(of_x(f"{tmp_path}/*.npy")) == ["0.npy"]


@pytest.mark.parametrize("other", ["1", "part-1", "1.emb", "1.parq"])
def test_data_whose_names_do_not_say_so(other, tmp_path, touch):
    """Writers name files as they like, and readers of folders take all."""
    touch("0.npy", "NOTES")
    pq.write_table(pa.table({"x": [1]}), tmp_path / other)
    message = refuse(tmp_path)
    assert f"{tmp_path}/{other}" in message
    assert "expected files of one kind" in message


def test_more_shards_in_folders_of_the_folder(tmp_path, touch):
    """Other readers read them; a glob says whether they are meant."""
    _, below, *_ = touch("a.npy", "sub/b.npy", "texts/c.parquet", "_old/d.npy", ".git/e.npy")
    with pytest.raises(InputError, match="more in folders, such as") as error:
        of_x(tmp_path)
    assert f"{below}, which pandas" in str(error.value)
    assert names(of_x(f"{tmp_path}/*.npy")) == ["a.npy"]
    assert names(of_x(f"{tmp_path}/**/*.npy")) == ["a.npy", "b.npy"]
    below.unlink()
    plan(np.eye(4, dtype=np.float32), batch_size=2).save(tmp_path / "sub" / "plan.npy")
    assert names(of_x(tmp_path)) == ["a.npy"]


@pytest.mark.parametrize("suffix", [".npz", ".jsonl", ".txt"])
def test_a_plan_in_the_folder_is_no_data(suffix, tmp_path):
    rows = np.random.default_rng(0).standard_normal((32, 4)).astype("f4")
    np.save(tmp_path / "x.npy", rows)
    plan(rows, planner="random", batch_size=8).save(tmp_path / f"plan{suffix}")
    assert names(of_x(tmp_path)) == ["x.npy"]


def test_a_name_with_glob_characters_is_taken_literally_if_it_exists(touch):
    literal, _ = touch("data[1].npy", "data1.npy")
    assert of_x(literal) == [literal]


def test_upper_case_suffix(touch):
    (path,) = touch("A.NPY")
    assert of_x(path) == [path]


def refuse(paths, side="x") -> str:
    with pytest.raises(InputError) as error:
        find_shards(paths, side)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_missing_path(tmp_path):
    message = refuse(tmp_path / "gone.npy")
    assert str(tmp_path / "gone.npy") in message
    assert "no such file" in message


def test_broken_link(tmp_path):
    (tmp_path / "link.npy").symlink_to(tmp_path / "gone")
    assert "no such file" in refuse(tmp_path / "link.npy")
    assert "not a regular file" in refuse(tmp_path)


def test_glob_without_match(tmp_path, touch):
    assert "no .npy, .parquet" in refuse(f"{tmp_path}/*.npy")
    touch("a.txt")
    assert "no .npy, .parquet" in refuse(f"{tmp_path}/*")


def test_folder_without_shards(tmp_path, touch):
    assert "no .npy, .parquet" in refuse(tmp_path)
    touch("_SUCCESS", "img_emb/0.npy")
    assert f"it has the folders img_emb: name one, or all by '{tmp_path}/**/*'" in refuse(tmp_path)


def test_mixed_folder(tmp_path, touch):
    touch("a.npy", "b.parquet")
    message = refuse(tmp_path)
    assert "a.npy" in message
    assert "b.parquet" in message
    assert "one kind" in message


def test_mixed_side(touch):
    npy, parquet = touch("a.npy", "b.parquet")
    assert "x: got both" in refuse([npy, parquet])
    assert "y: got both" in refuse([npy, parquet], "y")


@pytest.mark.parametrize("name", ["a.xyz", "a.csv", "a", "a.npy.gz"])
def test_unknown_suffix(touch, name):
    (path,) = touch(name)
    message = refuse(path)
    assert str(path) in message
    assert "expected .npy, .parquet" in message


@pytest.mark.parametrize("name", ["a.pkl", "a.PICKLE", "a.pt", "a.pth", "a.h5", "a.hdf5"])
def test_suffixes_of_what_can_be_converted(touch, name):
    (path,) = touch(name)
    is_hdf5 = "h" in path.suffix and not name.endswith("h")
    what = "HDF5, which is not read" if is_hdf5 else "can run any program"
    message = refuse(path)
    assert f"{path}: got suffix {path.suffix} (" in message
    assert f"{what}), expected" in message
    assert message.endswith("; convert it as 'Other files' in docs/formats.md shows")


def test_folder_called_npy(tmp_path):
    (tmp_path / "a.npy").mkdir()
    assert "no .npy, .parquet" in refuse(tmp_path / "a.npy")
    assert "not a regular file" in refuse(tmp_path)


def test_folder_called_parquet_is_a_folder(tmp_path, touch):
    touch("out.parquet/part-0.parquet", "out.parquet/_SUCCESS")
    assert names(of_x(tmp_path / "out.parquet")) == ["part-0.parquet"]


def test_a_pipe_is_no_shard(tmp_path):
    os.mkfifo(tmp_path / "p.npy")
    assert "not a regular file" in refuse(tmp_path / "p.npy")


def test_the_same_file_twice(tmp_path, touch):
    (path,) = touch("a.npy")
    assert "is repeated" in refuse([path, tmp_path])


@pytest.mark.parametrize("given", [[], [3], [None], [[1.0]], [np.zeros((2, 2))]])
def test_what_is_no_path(given):
    assert "x: got" in refuse(given)
    assert "y: got" in refuse(given, "y")


@pytest.fixture
def no_permission(tmp_path):
    """A folder that this process may not read, even if it began as root."""
    folder = tmp_path / "private"
    folder.mkdir()
    np.save(folder / "a.npy", np.ones((4, 2), np.float32))
    folder.chmod(0)
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(was)
    folder.chmod(0o700)


def test_permission_denied(no_permission):
    for path in (no_permission, no_permission / "a.npy"):
        message = refuse(path)
        assert str(path) in message
        assert "permission denied" in message
