"""What all formats of embeddings share: the same rows, fingerprint and plan."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchplan import InputError, plan
from batchplan.data import load_embeddings
from batchplan.data.formats import has_columns
from batchplan.files.inputs import INPUT_FORMATS
from tests.observing import Observer

from .writers import DTYPES, MAPPED, SIDES, WRITERS

ROWS = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
FORMATS = [
    (suffix, dtype) for suffix in WRITERS for dtype in DTYPES.get(suffix, ("f2", "f4", "i1"))
]


def written(folder, suffix, dtype="f4", rows=ROWS, name="a"):
    path = folder / f"{name}{suffix}"
    WRITERS[suffix](path, cast(rows, dtype))
    return path


def cast(rows, dtype):
    with np.errstate(invalid="ignore"):  # an infinite number has no int8
        return (rows * 40 if dtype == "i1" else rows).astype(dtype)


def first_dtype(suffix):
    return DTYPES.get(suffix, ("f4",))[0]


def test_every_format_is_tested():
    assert WRITERS.keys() == INPUT_FORMATS.keys()


@pytest.mark.parametrize(("suffix", "dtype"), FORMATS)
def test_rows_are_read_bit_by_bit(tmp_path, suffix, dtype):
    path = written(tmp_path, suffix, dtype)
    data = load_embeddings(path)
    expected = cast(ROWS, dtype)
    assert data.x.dtype == ("f4" if dtype == "i1" else dtype)
    assert data.y is data.x
    np.testing.assert_array_equal(data.x.rows(0, 40), expected)
    np.testing.assert_array_equal(data.x.take([39, 0, 39]), expected[[39, 0, 39]])
    assert data.fingerprint == load_embeddings(expected).fingerprint


@pytest.mark.parametrize("suffix", [name for name in WRITERS if name != ".fvecs"])  # needs a row
def test_shards_without_rows_are_skipped_and_counted(tmp_path, suffix):
    dtype, observer = first_dtype(suffix), Observer()
    parts = ROWS[:0], ROWS[:25], ROWS[25:25], ROWS[25:]
    for number, part in enumerate(parts):
        path = written(tmp_path, suffix, dtype, part, f"part-{number}")
        path.with_name(f".{path.name}.crc").write_bytes(b"crc")  # as Spark writes
    if suffix == ".parquet":  # without rows there may be no types
        pq.write_table(pa.table({"x": pa.nulls(0)}), tmp_path / "part-0.parquet")
    data = load_embeddings(tmp_path, single=True, observer=observer)
    whole = written(tmp_path / "..", suffix, dtype, name=tmp_path.name)
    assert data.fingerprint == load_embeddings(whole, single=True).fingerprint
    assert [shard.rows for shard in data.shards] == [25, 15]
    skipped = f"skipped 2 files without rows, such as {tmp_path}/part-0{suffix}"
    assert observer.notes[-1] == f"note: {skipped}"
    for number in (1, 3):
        (tmp_path / f"part-{number}{suffix}").unlink()
    with pytest.raises(InputError, match="expected at least 1"):
        load_embeddings(tmp_path, single=True)


@pytest.mark.parametrize(("suffix", "dtype"), FORMATS)
def test_the_same_pairs_give_the_same_plan(tmp_path, suffix, dtype):
    """As two files, as shards, and as one file where the format holds both sides."""
    sides = [cast(ROWS, dtype), cast(np.roll(ROWS, 1, axis=1), dtype)]
    expected = load_embeddings(*sides)
    paths = [tmp_path / "x", tmp_path / "y"]
    for path, rows in zip(paths, sides, strict=True):
        path.mkdir()
        for number, part in enumerate(np.split(rows, [7, 20])):
            WRITERS[suffix](path / f"{number}{suffix}", part)
    loaded = [load_embeddings(*paths)]
    if suffix in SIDES:
        SIDES[suffix](tmp_path / f"both{suffix}", *sides)
        loaded.append(load_embeddings(tmp_path / f"both{suffix}"))
    plan(expected, planner="gcbs", batch_size=8).save(tmp_path / "expected.npz")
    for data in loaded:
        assert data.fingerprint == expected.fingerprint
        plan(data, planner="gcbs", batch_size=8).save(tmp_path / "plan.npz", force=True)
        assert (tmp_path / "plan.npz").read_bytes() == (tmp_path / "expected.npz").read_bytes()


@pytest.mark.parametrize("suffix", MAPPED)
def test_arrays_are_mapped(tmp_path, suffix):
    path = written(tmp_path, suffix, first_dtype(suffix))
    data = load_embeddings(path, memory=1 << 40)
    assert not has_columns(path)
    assert str(path) in Path("/proc/self/maps").read_text()
    del data
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("suffix", sorted(WRITERS.keys() - {".fvecs"}))  # states no rows
def test_cut_short_or_too_long(tmp_path, suffix):
    path = written(tmp_path, suffix, first_dtype(suffix))
    content = path.read_bytes()
    for length in [*range(0, 64), len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(InputError) as error:
            load_embeddings(path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
    if suffix in MAPPED:
        path.write_bytes(content + b"\0")
        with pytest.raises(InputError, match="too long"):
            load_embeddings(path)


@pytest.mark.parametrize("suffix", [".arrow", ".fbin", ".npz", ".fvecs"])  # others: own tests
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=6))
@example(106, b"\0\x80")  # an Arrow type of lists of -2147483642 values
@example(106, b"\0\x1e")  # and of 503316486, as many as no disk holds
def test_damage_never_leaks_an_exception(tmp_path_factory, suffix, at, noise):
    path = written(tmp_path_factory.mktemp("damaged"), suffix, first_dtype(suffix))
    content = bytearray(path.read_bytes())
    content[at : at + len(noise)] = noise
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        data = load_embeddings(path)
        assert np.isfinite(data.x.rows(0, data.num_rows)).all()


@pytest.mark.parametrize("suffix", MAPPED)
def test_columns_are_named_in_words(tmp_path, suffix):
    with pytest.raises(InputError, match=r"a\S*: got id_column, but .* no"):
        load_embeddings(written(tmp_path, suffix, first_dtype(suffix)), id_column="id")


@pytest.mark.parametrize("suffix", sorted(WRITERS.keys() - {".i8bin"}))
def test_values_are_checked(tmp_path, suffix):
    bad = ROWS.copy()
    bad[[3, 9], 1] = np.inf
    path = written(tmp_path, suffix, first_dtype(suffix), bad)
    with pytest.raises(InputError, match=f"x: got 2 NaN or Inf values in 2 rows .{path} row 3, "):
        load_embeddings(path)


@pytest.mark.parametrize("suffix", WRITERS)
def test_shards_must_be_alike(tmp_path, suffix):
    dtype = first_dtype(suffix)
    written(tmp_path, suffix, dtype)
    written(tmp_path, suffix, dtype, ROWS[:, :3], "b")
    with pytest.raises(InputError, match=r"b\S*: got .*3 dimensions .*expected .*6 .*be alike"):
        load_embeddings(tmp_path)


def test_rows_of_fvecs_are_of_one_length(tmp_path):
    path = written(tmp_path, ".fvecs")
    content = bytearray(path.read_bytes())
    for length in (0, 3, 27, 28 * 7 + 1):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=re.escape(str(path))):
            load_embeddings(path)
    content[28 * 7] = 5
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a.fvecs row 7: got 5 dimensions, expected 6 as in the "):
        load_embeddings(path)
    path.write_bytes(b"\0\0\0\0" * 40)
    with pytest.raises(InputError, match="expected rows of 0 dimensions"):
        load_embeddings(path)


@pytest.mark.parametrize("suffix", sorted(SIDES))
def test_int8_counts_only_alone_or_named(tmp_path, suffix):
    """Files with floats and other matrices of int8 read as before there was int8."""
    floats, others = ROWS, cast(ROWS, "i1")
    SIDES[suffix](tmp_path / f"a{suffix}", floats, others)
    path = tmp_path / f"a{suffix}"
    assert load_embeddings(path).fingerprint == load_embeddings(floats).fingerprint
    named = load_embeddings(path, x_column="y", y_column="y")
    assert named.fingerprint == load_embeddings(others).fingerprint
    assert load_embeddings(path, x_column="x", y_column="y").paired


def test_int8_is_kept_and_not_mixed(tmp_path):
    written(tmp_path, ".npy", "i1")
    data = load_embeddings(tmp_path / "a.npy")
    np.save(tmp_path / "f.npy", np.asfortranarray(cast(ROWS, "i1")))
    assert load_embeddings(tmp_path / "f.npy").fingerprint == data.fingerprint
    assert load_embeddings(cast(ROWS, "i1")).fingerprint == data.fingerprint
    (tmp_path / "f.npy").unlink()
    written(tmp_path, ".npy", "f4", name="b")
    with pytest.raises(InputError, match=r"got 6 dimensions of float32, expected 6 of int8 as in"):
        load_embeddings(tmp_path)
