"""From paths to shards: order, folders, globs, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from batchplan.data.shards import find_shards, natural_key
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


def of_x(paths):
    return find_shards(paths, "x")


def names(paths):
    return [path.name for path in paths]


def test_natural_order():
    given = ["b10", "b2", "a", "b", "10", "9", "b2c10", "b2c9", "01", "1", "x²3"]
    got = [p.name for p in sorted(map(Path, given), key=natural_key)]
    assert got == ["01", "1", "9", "10", "a", "b", "b2", "b2c9", "b2c10", "b10", "x²3"]


def test_folder_is_in_natural_order_and_ignores_what_is_no_shard(tmp_path, touch):
    touch("10.npy", "2.npy", "1.npy", ".hidden.npy", "_SUCCESS", "_metadata.parquet", "notes.md")
    (tmp_path / "sub").mkdir()
    assert names(of_x(tmp_path)) == ["1.npy", "2.npy", "10.npy"]


def test_glob_is_in_natural_order(tmp_path, touch):
    touch("p/10.npy", "p/2.npy", "p/2.json", "q/1.npy", "10/1.npy", "9/1.npy")
    assert names(of_x(f"{tmp_path}/p/*")) == ["2.npy", "10.npy"]
    found = of_x(f"{tmp_path}/**/1.npy")
    assert [p.parent.name for p in found] == ["9", "10", "q"]


def test_arguments_keep_their_order(tmp_path, touch):
    b, a = touch("b.npy", "a.npy")
    touch("f/2.npy", "f/10.npy")
    assert names(of_x([b, tmp_path / "f", a])) == ["b.npy", "2.npy", "10.npy", "a.npy"]


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
    assert "it has the folders img_emb" in refuse(tmp_path)


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
