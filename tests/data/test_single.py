"""One matrix that was meant as pairs makes a plan of twice the rows, so it is asked for."""

import shlex
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.data import load_embeddings
from batchplan.errors import InputError

from .writers import WRITERS

ROWS = np.random.default_rng(0).standard_normal((6, 4), np.float32)
MEND = "name the files of the other side as the pair (--pair), or pass single=True (--single)"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x.npy", "y.npy"):
        np.save(name, ROWS)
    for name in ("x.parquet", "y.parquet"):
        pq.write_table(pa.table({"v": pa.array(list(ROWS))}), name)
    WRITERS[".safetensors"](Path("s.safetensors"), ROWS)
    pq.write_table(pa.table({"x": pa.array(list(ROWS)), "y": pa.array(list(ROWS))}), "xy.parquet")


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_two_paths_of_one_matrix_are_refused(suffix):
    names = [f"x.{suffix}", f"y.{suffix}"]
    with pytest.raises(InputError, match=rf"; name both: x.{suffix} --pair y.{suffix} \("):
        load_embeddings(names)
    write(f".{suffix}", "0", "1")
    with pytest.raises(InputError) as error:
        load_embeddings([f"0.{suffix}", f"1.{suffix}"])
    assert str(error.value) == (
        f"0.{suffix}, 1.{suffix}: got 2 paths of one matrix, whose rows would be their own "
        f"positives, expected pairs; {MEND} if they are shards of one matrix"
    )
    assert not load_embeddings(names, single=True).paired
    assert load_embeddings(names, single=True).num_rows == 12
    assert load_embeddings(names[:1], names[1:]).paired


@pytest.mark.parametrize("paths", ["x.npy", "./x.npy", ["x.npy", "y.npy"], "*.npy"])
def test_the_same_files_for_both_sides_are_refused(paths):
    pair = "x.npy" if paths == "./x.npy" else paths
    with pytest.raises(InputError, match=r"x\.npy: got the same files for both sides, whose rows"):
        load_embeddings(paths, pair)
    assert load_embeddings("x.npy", "y.npy").paired
    assert load_embeddings("xy.parquet", "xy.parquet", x_column="x", y_column="y").paired


def write(suffix, *names):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        WRITERS[suffix](Path(f"{name}{suffix}"), ROWS)


TWO_SIDES = {  # the names of files, and both sides for a shell
    "x y": (["x", "y"], "d/x{} --pair d/y{}"),
    "query doc": (["doc_v2", "query_v2"], "d/doc_v2{} --pair d/query_v2{}"),
    "clip-retrieval": (
        [f"{side}_emb_{part}" for side in ("img", "text") for part in range(12)],
        "'d/img_emb_[0-9]*{}' --pair 'd/text_emb_[0-9]*{}'",
    ),
    "parts of parts": (
        [f"{side} 7-{part:05}-of-00002" for side in "ab" for part in range(2)],
        "'d/a 7-[0-9]*-of-00002{}' --pair 'd/b 7-[0-9]*-of-00002{}'",
    ),
}


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".safetensors", ".fbin"])
@pytest.mark.parametrize("case", TWO_SIDES)
def test_two_sides_in_one_folder_are_refused(case, suffix):
    names, command = TWO_SIDES[case]
    write(suffix, *(f"d/{name}" for name in names))
    command = command.format(suffix, suffix)
    for source in ("d", f"d/*{suffix}"):
        with pytest.raises(InputError) as error:
            load_embeddings(source, shard_order="natural")
        one, other = command.split(" --pair ")
        said = f"{one} and {other}: got {3 * len(names)} rows each, which look like the two sides"
        assert str(error.value).startswith(said)
        assert f"; name both: {command} (pair in Python), or pass single=True" in str(error.value)
        assert len(str(error.value)) <= 500
        assert load_embeddings(source, single=True, shard_order="natural").num_rows == 6 * len(
            names
        )
    x, _, y = shlex.split(command)
    assert load_embeddings(x, y, shard_order="natural").num_rows == 3 * len(names)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize(
    "names",
    [
        ["part-0", "part-1"],
        ["img_emb_0", "img_emb_1"],
        [f"train-{part:05}-of-00003" for part in range(3)],
        ["x", "x2"],
        ["x0", "x1", "y0"],
    ],
    ids=" ".join,
)
def test_shards_of_one_matrix_are_not(names, suffix):
    write(suffix, *(f"d/{name}" for name in names))
    with pytest.warns(UserWarning, match="one matrix of") as told:
        load_embeddings("d", shard_order="natural")
    held = (
        f"(column 'x' of {len(names)} files)" if suffix == ".parquet" else f"of {len(names)} files"
    )
    size = f"d: one matrix of {6 * len(names)} x 4 {held}, so each row is its own positive; {MEND}"
    assert {str(warning.message) for warning in told} == {size}


def test_three_sides_in_one_folder_are_refused():
    write(".npy", "d/anchor", "d/negative", "d/positive")
    match = "^d/anchor.npy and d/negative.npy and d/positive.npy: got 6 rows each, which look like"
    with pytest.raises(InputError, match=match) as error:
        load_embeddings("d")
    assert "(--pair) and mined negatives (--negatives), or pass single" in str(error.value)
    assert load_embeddings("d", single=True).num_rows == 18


def test_sides_of_other_sizes_are_shards():
    write(".npy", "d/a", "d/b")
    np.save("d/b.npy", ROWS[:5])
    with pytest.warns(UserWarning, match="d: one matrix of 11 x 4 of 2 files, so each row"):
        load_embeddings("d")


@pytest.mark.parametrize(
    ("path", "what"),
    [("x.npy", ""), ("x.parquet", " (column 'v')"), ("s.safetensors", " (tensor 'x')")],
)
def test_one_path_of_one_matrix_is_told_of(path, what):
    with pytest.warns(UserWarning, match="one matrix") as told:
        load_embeddings(path)
    (message,) = {str(warning.message) for warning in told}
    assert {warning.filename for warning in told} == {__file__}
    assert message == f"{path}: one matrix of 6 x 4{what}, so each row is its own positive; {MEND}"


def test_a_matrix_that_was_asked_for_is_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_embeddings("x.npy", single=True)
        load_embeddings("xy.parquet", x_column="x", y_column="x")
        load_embeddings("x.npy", "y.npy")
        load_embeddings("xy.parquet")


@pytest.mark.parametrize("sides", [("xy.parquet",), ("x.npy", "y.npy")])
def test_pairs_are_no_single_matrix(sides):
    with pytest.raises(InputError, match=r"got two sides of pairs, expected one matrix"):
        load_embeddings(*sides, single=True)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_sides_with_other_numbers_of_rows_are_refused(suffix):
    for name, rows in (("x", 5), ("y", 3)):
        Path("d").mkdir(exist_ok=True)
        WRITERS[suffix](Path(f"d/{name}{suffix}"), ROWS[:rows])
    with pytest.raises(InputError) as error:
        load_embeddings("d")
    said = f"d/x{suffix} and d/y{suffix}: got 5 and 3 rows, which look like the two sides of pairs"
    assert str(error.value).startswith(said)
    assert load_embeddings("d", single=True).num_rows == 8


def test_an_empty_path_is_not_the_folder_of_the_process():
    for paths in ("", [""], ["x.npy", ""]):
        with pytest.raises(InputError, match="x: got an empty path, expected a file, folder or gl"):
            load_embeddings(paths)
