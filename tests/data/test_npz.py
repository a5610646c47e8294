"""NPZ archives: named arrays, deflated ones, and every way in which one can be wrong."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import scipy.sparse

from batchplan.data import load_embeddings
from batchplan.data.formats.npz import FORMAT
from batchplan.data.wanted import Wanted

from .test_npy import refuse
from .writers import bits

X = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
Y = np.roll(X, 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.npz"


def write(path, data, name="x.npy", method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, data)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f4", "<f8", "i1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_as_numpy_saves(path, save, dtype, order):
    x = np.array(X * 40, dtype, order=order)
    save(path, x)
    expected = load_embeddings(np.ascontiguousarray(x)).fingerprint
    assert load_embeddings(path).fingerprint == expected
    save(path, ids=np.arange(50), x=x, y=Y)
    assert load_embeddings(path, x_column="x", y_column="x").fingerprint == expected


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_sides_by_name(path, save):
    both = load_embeddings(X, Y).fingerprint
    for one, other in (("x", "y"), ("anchor", "positive")):
        save(path, **{other: Y, "n": np.arange(50), one: X})
        assert load_embeddings(path).fingerprint == both
    save(path, X, Y)
    refuse(path, "got 2 vector columns", "'arr_0' float32 [50, 6]", "x_column (--x-column)")
    assert load_embeddings(path, x_column="arr_0", y_column="arr_1").fingerprint == both
    assert load_embeddings(path, path, x_column="arr_0", y_column="arr_1").fingerprint == both


def test_stored_arrays_are_mapped_if_they_are_aligned(path):
    for name in ("x", "xx", "xxx", "xxxx"):  # the place of the numbers depends on the name
        write(path, npy(X), f"{name}.npy", zipfile.ZIP_STORED)
        (source,) = FORMAT.sources([path], "x", Wanted())
        assert load_embeddings(path).fingerprint == load_embeddings(X).fingerprint
        if source.need == 0:
            return
    pytest.fail("none was mapped")


def test_sizes_are_checked_before_anything_is_allocated(path):
    header = npy(np.ones((2, 4), np.float32))[:-32]
    write(path, header.replace(b"(2, 4), }  ", b"(1073741824, 4), }")[:128] + bytes(1 << 20))
    refuse(path, "cannot be read as NPZ", "'x.npy' has ")
    write(path, b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little") + b" " * (1 << 21))
    refuse(path, "cannot be read as NPZ")  # a header of 1 GB is not read
    write(path, npy(X))
    content = path.read_bytes()
    size = (len(npy(X))).to_bytes(4, "little")
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, b"\xff\xff\xff\x7f"))
    refuse(path, "'x.npy' claims 2147483647 bytes")


def test_damage_and_other_methods(path):
    write(path, npy(X))
    content = bytearray(path.read_bytes())
    content[300] ^= 16
    path.write_bytes(content)
    refuse(path, "cannot be read as NPZ", "damaged")
    write(path, npy(X), method=zipfile.ZIP_BZIP2)
    refuse(path, "another method than deflate")
    write(path, b"text", "a.txt")
    refuse(path, "got 0 vector columns")


def test_what_has_no_vectors_is_named(path):
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(X))
    refuse(path, "got 0 vector columns", "'indptr' int32", "'data' float32")
    np.savez(path, np.packbits(X > 0, axis=1))
    refuse(path, "packed bits", "np.unpackbits")
    np.savez(path, np.ones(4, np.float32))
    refuse(path, "got 1 dimensions", "np.stack")
    np.savez(path, np.array([[1.0, None]], dtype=object))
    refuse(path, "never unpickled")
    np.savez(path, bits(X).view("V2"))
    refuse(path, ".view(ml_dtypes.bfloat16)")
