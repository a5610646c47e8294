"""safetensors: which tensor, bfloat16 bit by bit, and headers that lie."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchplan import InputError, evaluate, plan
from batchplan.data import load_embeddings
from batchplan.data.formats.safetensors import FORMAT
from batchplan.data.wanted import Wanted

from .test_npy import refuse
from .writers import bits, safetensors

X = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
Y = X[:, ::-1].copy()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


def with_header(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("names", ["xy", ("anchor", "positive")])
@pytest.mark.parametrize("swapped", [False, True])
def test_names_tell_the_sides_and_their_order_does_not(path, names, swapped):
    step = -1 if swapped else 1
    safetensors(path, *(X, Y)[::step], names=names[::step])
    data = load_embeddings(path)
    assert data.fingerprint == load_embeddings(X, Y).fingerprint


def test_named_matrices(path):
    labels, scale = np.arange(20), np.ones(1, np.float32)
    safetensors(path, X, labels, Y, scale, X[:, :2].copy(), names=["b", "labels", "a", "t", "c"])
    both = load_embeddings(X, Y).fingerprint
    assert load_embeddings(path, x_column="b", y_column="a").fingerprint == both
    single = load_embeddings(X).fingerprint
    assert load_embeddings(path, x_column="b", y_column="b").fingerprint == single
    assert load_embeddings(path, path, x_column="b", y_column="a").fingerprint == both
    refuse(
        path, "got 3 vector columns", "expected 1 or x and y or anchor and positive; the tensors "
        "are 'b' F32 [20, 4], 'labels' int64 [20], 'a' F32 [20, 4], 't' F32 [1], 'c' F32 "
        "[20, 2]; choose with x_column (--x-column) and y_column (--y-column)",
    )  # fmt: skip
    refuse(
        path,
        "expected 1 for side x because a pair is set",
        "choose with x_column (--x-column)",
        pair=path,
    )
    for name in ("labels", "t", "w"):
        refuse(path, f"'{name}' is none of the vector columns", "int8) or matrices", x_column=name)
    with pytest.raises(InputError, match="x and y: got 4 and 2 dimensions"):
        load_embeddings(path, x_column="b", y_column="c")


def test_two_matrices_of_other_names_are_not_guessed(path):
    safetensors(path, X, Y, names=["documents", "queries"])
    refuse(path, "expected 1 or x and y or anchor and positive")
    both = load_embeddings(Y, X).fingerprint
    assert load_embeddings(path, x_column="queries").fingerprint == both


def test_bfloat16_is_mapped_and_read_bit_by_bit(path):
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = every[(every & 0x7F80) != 0x7F80].reshape(-1, 8)
    safetensors(path, finite)
    (source,) = FORMAT.sources([path], ("x", "y"), Wanted())
    assert (source.need, source.work) == (0, 0)
    matrix = load_embeddings(path).x
    expected = torch.from_numpy(finite.view(np.int16)).view(torch.bfloat16).float().numpy()
    assert matrix.dtype == np.float32
    rows = matrix.rows(0, len(finite))
    np.testing.assert_array_equal(rows.view(np.uint32), expected.view(np.uint32))
    order = np.random.default_rng(0).permutation(len(finite))
    np.testing.assert_array_equal(matrix.take(order), expected[order])
    assert load_embeddings(path).fingerprint == load_embeddings(expected).fingerprint


def test_bfloat16_shards_plan_as_their_float32(tmp_path):
    """Also shards of both dtypes, and numbers that begin at an odd byte."""
    halves = bits(X)
    exact = (halves.astype(np.uint32) << 16).view(np.float32)
    for name in ("bf16", "mixed", "odd"):
        (tmp_path / name).mkdir()
    for number, rows in enumerate(np.split(halves, [3, 9])):
        path = f"{number}.safetensors"
        safetensors(tmp_path / "bf16" / path, rows)
        safetensors(tmp_path / "mixed" / path, rows if number else exact[:3])
        header = {"x": {"dtype": "BF16", "shape": rows.shape, "data_offsets": [0, rows.nbytes]}}
        text = json.dumps(header).encode()
        with_header(tmp_path / "odd" / path, text + b" " * (1 - len(text) % 2), rows.tobytes())
    expected = plan(load_embeddings(exact), planner="gcbs", batch_size=4)
    for name in ("bf16", "mixed", "odd"):
        data = load_embeddings(tmp_path / name)
        np.testing.assert_array_equal(data.x.rows(0, 20), exact)
        np.testing.assert_array_equal(data.x.take([19, 2, 4, 2]), exact[[19, 2, 4, 2]])
        planned = plan(data, planner="gcbs", batch_size=4)
        assert planned.metadata == expected.metadata
        np.testing.assert_array_equal(planned.rows, expected.rows)
        assert evaluate(planned, data) == evaluate(expected, load_embeddings(exact))


def test_numbers_at_an_odd_byte_are_counted(path):
    """They are converted, which takes memory; mapped ones take none."""
    halves = bits(X)
    header = {"x": {"dtype": "BF16", "shape": halves.shape, "data_offsets": [0, halves.nbytes]}}
    text = json.dumps(header).encode()
    with_header(path, text + b" " * (1 - len(text) % 2), halves.tobytes())
    (source,) = FORMAT.sources([path], ("x", "y"), Wanted())
    assert (source.need, source.work) == (20 * 4 * 4, 20)


def test_float64(path):
    safetensors(path, X.astype(np.float64))
    assert load_embeddings(path).fingerprint == load_embeddings(X).fingerprint


def test_shards_with_other_tensors(tmp_path):
    safetensors(tmp_path / "1.safetensors", X)
    safetensors(tmp_path / "2.safetensors", X, names=["v"])
    refuse(tmp_path, "2.safetensors: there is no tensor 'x', expected it in all shards of a side")
    safetensors(tmp_path / "2.safetensors", np.ones((4, 4), np.complex64))
    refuse(tmp_path, "2.safetensors: tensor 'x': got complex64, expected F16, BF16, F32 or I8")


def fields(**changes):
    return {"dtype": "F32", "shape": [20, 4], "data_offsets": [0, 320], **changes}


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ({"x": fields(shape=[20, 5])}, "shape [20, 5] of F32 does not take 320 bytes"),
        ({"x": fields(shape=[2**40, 4])}, "does not take 320 bytes"),
        ({"x": fields(shape=[-20, -4])}, "make no sense"),
        ({"x": fields(shape=[20.0, 4])}, "make no sense"),
        ({"x": fields(shape=[True, 80])}, "make no sense"),
        ({"x": fields(data_offsets=[320, 0])}, "make no sense"),
        ({"x": fields(data_offsets=[-320, 0])}, "make no sense"),
        ({"x": fields(data_offsets=[8, 328])}, "'x' does not follow the one before it"),
        ({"x": fields(data_offsets=[0])}, "header that cannot be read"),
        ({"x": fields(dtype=["F32"])}, "header that cannot be read"),
        ({"x": {"dtype": "F32", "shape": [20, 4]}}, "header that cannot be read"),
        ({"x": 3}, "header that cannot be read"),
        ({"x": fields(), "y": fields()}, "'y' does not follow the one before it"),
        ({"x": fields(shape=[2**61, 4], data_offsets=[0, 2**65])}, "cut short"),
        ({"x": fields(shape=[20, 3], data_offsets=[0, 240])}, "too long"),
        ({}, "too long"),
        ([], "header that cannot be read"),
        (b"", "header of 0 bytes"),
        (b"{" * 900, "header that cannot be read"),
        (b'{"x": NaN}', "NaN is not a JSON number"),
        (b"\xff\xfe\x00", "header that cannot be read"),
    ],
)
def test_headers_that_lie_are_caught_before_anything_is_mapped(path, header, part, monkeypatch):
    with_header(path, header, X.tobytes())
    monkeypatch.setattr(np, "memmap", lambda *_: pytest.fail("was mapped"))
    refuse(path, part)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 17 << 20, 400])
def test_sizes_of_headers_that_lie(path, size):
    path.write_bytes(size.to_bytes(8, "little") + b"{}" + X.tobytes())
    refuse(path, f"it states a header of {size} bytes in a file of 330")


def test_an_empty_matrix_and_empty_tensors(path):
    header = {
        "x": fields(), "a": fields(shape=[0], data_offsets=[0, 0]),
        "__metadata__": {"format": "pt"}, "b": fields(shape=[0], data_offsets=[320, 320]),
    }  # fmt: skip
    with_header(path, header, X.tobytes())
    np.testing.assert_array_equal(load_embeddings(path).x.rows(0, 20), X)
    with_header(path, {"x": fields(shape=[0, 4], data_offsets=[0, 0])})
    refuse(path, "got shape (0, 4), expected at least 1 row")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.integers(0, 75), st.binary(min_size=1, max_size=4))
def test_damaged_headers_never_leak_an_exception(tmp_path_factory, at, noise):
    path = tmp_path_factory.mktemp("damaged") / "a.safetensors"
    safetensors(path, X)
    data = bytearray(path.read_bytes())
    data[at : at + len(noise)] = noise
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        loaded = load_embeddings(path, memory=1 << 40)
        assert loaded.x.shape[0] * loaded.x.shape[1] <= X.nbytes // 2
