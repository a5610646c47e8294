"""NPY files read right, and every way in which one can be wrong, in real files."""

from __future__ import annotations

import contextlib
import io
import pickle
import resource
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy_format

from batchplan import InputError, ResourceError
from batchplan.data import load_embeddings
from batchplan.data.formats.npy import FORMAT
from batchplan.data.wanted import Wanted
from tests.observing import Observer

GOOD = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)


def refuse(path, *parts: str, **options) -> None:
    with pytest.raises(InputError) as error:
        load_embeddings(path, **options)
    message = str(error.value)
    assert "\n" not in message
    for part in (str(path), *parts):
        assert part in message, message


def header_only(path, descr: str, shape, body: bytes = b"", fortran: bool = False) -> None:
    """A file whose header says whatever the test wants."""
    with path.open("wb") as file:
        fields = {"descr": descr, "fortran_order": fortran, "shape": shape}
        npy_format.write_array_header_1_0(file, fields)
        file.write(body)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.npy"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_written_by_numpy_is_mapped_and_needs_no_memory(path, dtype):
    np.save(path, GOOD.astype(dtype))
    (source,) = FORMAT.sources([path], "x", Wanted())
    assert (source.need, source.work) == (0, 0)
    matrix = load_embeddings(path).x
    assert matrix.dtype == dtype
    base = matrix.rows(0, 10)
    while not isinstance(base, np.memmap):
        base = base.base
    np.testing.assert_array_equal(matrix.rows(0, 10), np.load(path))


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_order_and_version_reads_right(path, dtype, order, version):
    with path.open("wb") as file:
        npy_format.write_array(file, np.array(GOOD, dtype, order=order), version)
    loaded = load_embeddings(path)
    oracle = np.load(path)
    assert loaded.x.dtype.isnative
    assert loaded.x.dtype.itemsize == min(oracle.itemsize, 4)
    assert loaded.x.rows(0, 10).flags.c_contiguous
    np.testing.assert_array_equal(loaded.x.rows(0, 10), oracle)
    little = GOOD.astype(loaded.x.dtype)
    assert loaded.fingerprint == load_embeddings(little).fingerprint


@pytest.mark.parametrize("shape", [(1, 7), (7, 1)])
def test_fortran_order_of_a_single_row_or_column(tmp_path, shape):
    header_only(tmp_path / "a.npy", "<f4", shape, np.arange(7, dtype="<f4").tobytes(), True)
    np.save(tmp_path / "b.npy", np.ones((3, shape[1]), np.float32))
    loaded = load_embeddings(tmp_path)
    expected = np.arange(7, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(loaded.x.rows(0, shape[0]), expected)


def test_data_at_an_odd_offset(path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (10, 4), }\n"
    prefix = npy_format.magic(1, 0) + struct.pack("<H", len(header))
    assert len(prefix + header) % 4 != 0
    path.write_bytes(prefix + header + GOOD.tobytes())
    rows = load_embeddings(path).x.rows(0, 10)
    assert rows.flags.aligned
    np.testing.assert_array_equal(rows, GOOD)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.integers(0, 9), max_size=4), st.booleans())
def test_any_sharding_gives_the_same_rows_and_fingerprint(tmp_path_factory, cuts, fortran):
    folder = tmp_path_factory.mktemp("shards")
    parts = [part for part in np.split(GOOD, sorted(cuts)) if len(part)]
    for number, part in enumerate(parts):
        np.save(folder / f"{number}.npy", np.asfortranarray(part) if fortran else part)
    loaded = load_embeddings(folder)
    np.testing.assert_array_equal(loaded.x.rows(0, 10), GOOD)
    assert loaded.fingerprint == load_embeddings(GOOD).fingerprint
    assert [shard.rows for shard in loaded.shards] == [len(part) for part in parts]


@pytest.mark.parametrize(
    ("array", "parts"),
    [
        (np.float32(1), ("0 dimensions", "expected 2")),
        (np.ones(5, np.float32), ("1 dimensions", "(5,)", "np.stack")),
        (np.ones((2, 3, 4), np.float32), ("3 dimensions", "(2, 3, 4)", "reshape")),
        (np.ones((4, 2), np.int64), ("int64 (integers)", "expected float16, float32 or int8")),
        (np.ones((4, 2), np.uint8), ("uint8 (packed bits, or quantised",)),
        (np.ones((4, 2), bool), ("bool (booleans)",)),
        (np.ones((4, 2), np.complex64), ("complex64 (complex numbers)",)),
        (np.ones((4, 2), np.longdouble), ("float128", "expected float16, float32 or int8")),
        (np.ones((4, 2), "f4,f4"), ("structured dtype",)),
        (np.full((4, 2), "a"), ("<U1",)),
        (np.ones((4, 2), "M8[s]"), ("datetime64",)),
        (np.ones((0, 4), np.float32), ("(0, 4)", "at least 1 row")),
        (np.ones((4, 0), np.float32), ("(4, 0)", "1 dimension")),
    ],
)
def test_wrong_shapes_and_dtypes(path, array, parts):
    np.save(path, array)
    refuse(path, *parts)


def test_a_single_row(path):
    np.save(path, GOOD[:1])
    with pytest.raises(InputError, match="x: got 1 rows, expected at least 2"):
        load_embeddings(path)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_never_loaded(path):
    np.save(path, np.array([Bomb(), [1.0]], dtype=object), allow_pickle=True)
    refuse(path, "dtype object", "never unpickled", "np.stack")
    path.write_bytes(pickle.dumps(Bomb()))
    refuse(path, "a pickle, which is never loaded", "expected NPY")


def test_cut_short_at_every_byte(path):
    buffer = io.BytesIO()
    np.save(buffer, GOOD)
    data = buffer.getvalue()
    for length in [*range(0, 130), len(data) - 1]:
        path.write_bytes(data[:length])
        refuse(path)
    refuse(path, "got 287 bytes, expected 288", "cut short")


def test_too_long(path):
    np.save(path, GOOD)
    path.write_bytes(path.read_bytes() + b"\0")
    refuse(path, "got 289 bytes, expected 288", "too long")


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((10**15, 384), "cut short"),
        ((2**62, 4), "cut short"),
        ((2**63, 2**63), "cut short"),
        ((2**32, 2**32), "cut short"),
        ((-1, 4), "negative"),
        ((-4, -10), "negative"),
        ((10, -4), "negative"),
        ((11, 4), "got 288 bytes, expected 304"),
    ],
)
def test_headers_that_lie_are_caught_before_anything_is_mapped(path, shape, part, monkeypatch):
    header_only(path, "<f4", shape, GOOD.tobytes())
    monkeypatch.setattr(np, "memmap", lambda *_: pytest.fail("was mapped"))
    refuse(path, part)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (10, 4)",
        b"{'descr': '<f4', 'fortran_order': False}",
        b"{'descr': '<f4', 'fortran_order': 3, 'shape': (10, 4)}",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (10.0, 4)}",
        b"{'descr': '<q9', 'fortran_order': False, 'shape': (10, 4)}",
        b"{'descr': [], 'fortran_order': False, 'shape': (10, 4)}",
        b"__import__('os').abort()",
        b"(" * 900,
        b"\xff\xfe\x00",
        b"'''",
        b"[" + b"9" * 5000 + b"]",
    ],
)
def test_headers_that_make_no_sense(path, header):
    prefix = npy_format.magic(1, 0) + struct.pack("<H", len(header))
    path.write_bytes(prefix + header + GOOD.tobytes())
    refuse(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.integers(0, 127), st.binary(min_size=1, max_size=4))
def test_damaged_headers_never_leak_an_exception(tmp_path_factory, at, noise):
    path = tmp_path_factory.mktemp("damaged") / "a.npy"
    buffer = io.BytesIO()
    np.save(buffer, GOOD)
    data = bytearray(buffer.getvalue())
    data[at : at + len(noise)] = noise
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        loaded = load_embeddings(path)
        np.testing.assert_array_equal(loaded.x.rows(0, loaded.num_rows), np.load(path))


@pytest.mark.parametrize("version", [(0, 9), (4, 0), (1, 1)])
def test_unknown_version(path, version):
    np.save(path, GOOD)
    data = bytearray(path.read_bytes())
    data[6:8] = bytes(version)
    path.write_bytes(data)
    refuse(path, "header that cannot be read", "expected 1.0 to 3.0")


def test_other_files_by_this_name(path):
    with path.open("wb") as file:
        np.savez(file, GOOD)
    refuse(path, "got NPZ, expected NPY; name it .npz")
    path.write_text("0.1 0.2\n0.3 0.4\n")
    refuse(path, "begins with", "expected an NPY file")
    path.write_bytes(b"")
    refuse(path, "empty file (0 bytes)")


def test_shards_must_be_alike(tmp_path):
    np.save(tmp_path / "0.npy", GOOD)
    for other in (GOOD[:, :3], GOOD.astype(np.float16)):
        np.save(tmp_path / "1.npy", other)
        with pytest.raises(InputError) as error:
            load_embeddings(tmp_path)
        for part in (f"{tmp_path}/1.npy", f"{tmp_path}/0.npy", "4 of float32", "side x"):
            assert part in str(error.value)


def test_an_overflow_of_float64_is_placed(path):
    data = GOOD.astype(np.float64)
    data[7, 2] = -1e39
    np.save(path, data)
    refuse(path, "row 7", "1 NaN or Inf values in 1 rows", "float32 can hold")


def test_conversion_needs_memory_or_a_temporary_file(path):
    for order, notes in ((">f4", 1), ("<f4", 0)):  # the second is mapped
        np.save(path, np.arange(1000 * 300, dtype=order).reshape(1000, 300))
        observer = Observer()
        loaded = load_embeddings(path, single=True, memory=1, observer=observer)
        assert len(observer.notes) == notes
        assert np.array_equal(loaded.x.rows(0, 1000), np.load(path))


def test_too_many_shards_for_the_open_files_allowed(tmp_path):
    for number in range(80):
        np.save(tmp_path / f"{number:02d}.npy", GOOD)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with pytest.raises(ResourceError, match=r"too many open files.*ulimit -n"):
            load_embeddings(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
