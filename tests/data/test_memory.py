"""Sides in memory: tensors, and columns of vectors through Arrow's interfaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from batchplan import InputError
from batchplan.data import Embeddings, load_embeddings

from .writers import bits, column

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
BITS = bits(X)
EXACT = (BITS.astype(np.uint32) << 16).view(np.float32)


def lists(rows, kind=pa.list_):
    return pa.array(rows.tolist(), kind(pa.from_numpy_dtype(rows.dtype)))


class Exported:
    """A column of another library: polars, or pandas from 3.0."""

    def __init__(self, column, shape=(12,)):
        self._column, self.shape = column, shape

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.chunked_array(self._column).__arrow_c_stream__(requested_schema)


class OldSeries:
    """A column of pandas before 3.0."""

    def __init__(self, rows):
        self._rows = rows
        self.shape = (len(rows),)

    def __array__(self, dtype=None, copy=None):
        out = np.empty(len(self._rows), object)
        out[:] = list(self._rows)
        return out


class Tabular:
    """What `datasets` calls a Dataset, and its lazy column."""

    def __init__(self, table):
        self.table, self.features = table, {}

    def select_columns(self, names):
        return Tabular(self.table.select(names))

    def with_format(self, name):
        assert name == "arrow"
        return self

    def __getitem__(self, key):
        return self.table[key]


class LazyColumn:
    def __init__(self, table, name):
        self.source, self.column_name = Tabular(table), name

    def __getitem__(self, key):
        pytest.fail("was read row by row")

    __len__ = __iter__ = None


def bfloat16(rows):
    return torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    "make",
    [
        torch.from_numpy,
        lambda rows: torch.from_numpy(rows).requires_grad_(),
        lambda rows: torch.nn.Parameter(torch.from_numpy(rows)) * 1,
        lambda rows: torch.from_numpy(np.asfortranarray(rows)),
        column,
        lists,
        lambda rows: lists(rows, pa.large_list),
        lambda rows: lists(np.concatenate([rows, rows]))[12:],
        lambda rows: pa.chunked_array([lists(rows[:5]), lists(rows[:0]), lists(rows[5:])]),
        lambda rows: Exported([column(rows[:7]), column(rows[7:])]),
        OldSeries,
        lambda rows: LazyColumn(pa.table({"a": [1] * 12, "v": lists(rows)}), "v"),
        lambda rows: OldSeries(rows.tolist()),
    ],
)
def test_other_values_are_the_same_rows(make, dtype):
    rows = X.astype(dtype)
    values = make(rows)
    double = isinstance(values, OldSeries) and isinstance(values._rows, list)  # floats of Python
    expected = load_embeddings(rows.astype(np.float32) if double else rows)
    for data in (load_embeddings(values), Embeddings.from_arrays(values)):
        np.testing.assert_array_equal(data.x.rows(0, 12), rows)
        assert data.fingerprint == expected.fingerprint
    assert load_embeddings(values, rows).paired


@pytest.mark.parametrize(
    "make",
    [
        torch.from_numpy,
        lambda rows: torch.from_numpy(rows).requires_grad_(),
        column,
        lambda rows: pa.chunked_array([column(rows[:5]), column(rows[5:])]),
        lambda rows: Exported([column(rows)]),
    ],
)
def test_numbers_are_not_copied(make):
    values = make(X)
    for start, stop in ((0, 5), (5, 12)):
        rows = load_embeddings(values).x.rows(start, stop)
        assert np.shares_memory(rows, load_embeddings(values).x.rows(start, stop))
        assert not rows.flags.writeable


@pytest.mark.parametrize(
    "tensor",
    [bfloat16(BITS), bfloat16(BITS).requires_grad_(), bfloat16(np.asfortranarray(BITS)),
     bfloat16(np.repeat(BITS, 2, axis=0))[::2]],
)  # fmt: skip
def test_bfloat16_tensors_are_float32_of_the_same_numbers(tensor):
    data = load_embeddings(tensor)
    assert data.x.dtype == np.float32
    np.testing.assert_array_equal(data.x.rows(0, 12), EXACT)
    np.testing.assert_array_equal(data.x.take([3, 1]), EXACT[[3, 1]])
    assert data.fingerprint == load_embeddings(EXACT).fingerprint


def test_a_dense_bfloat16_tensor_is_not_copied():
    tensor = bfloat16(BITS.copy())
    data = load_embeddings(tensor)
    tensor[0, 0] = 7
    assert data.x.rows(0, 1)[0, 0] == 7


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([[1.0, 2], [3.0]], pa.list_(pa.float32())),
         "x array row 1: got a list of 1 values, expected 2 as in the first row"),
        (pa.chunked_array([lists(X), pa.array([None], pa.list_(pa.float32()))]),
         "x array row 12: got null, expected a vector"),
        (pa.array([None], pa.list_(pa.float32())), "x array, row 0: got null"),
        (pa.array([[1.0, None]], pa.list_(pa.float32(), 2)),
         "x array row 0: got null as element 1 (of 1 nulls)"),
        (pa.array([[], []], pa.list_(pa.float32())), "got lists of 0 values"),
        (pa.array([], pa.list_(pa.float32())), "x array, row 0: got null"),
        (pa.array([[1, 2]]), "got a column of list<item: int64>, expected lists of float16"),
        (pa.array(["a"]), "got a column of string, expected lists of float16, float32 or int8"),
        (pa.array([1.0]), "got a column of double, expected lists of float16, float32 or int8"),
        (pa.array([[[1.0]]]), "expected lists of float16, float32 or int8"),
        (OldSeries([[1.0], 2]), "which is no column of vectors"),
        (OldSeries([[1.0, 2], [1.0]]), "x array row 1: got a list of 1 values, expected 2"),
        (pa.table({"v": lists(X), "t": ["a"] * 12}),
         "x array: got Table of Python objects, expected numbers; of a table pass a column"),
        (lists(np.array([[np.nan, 1], [2, 3]], np.float32)), "x: got 1 NaN or Inf values in 1 row"),
        (torch.full((4, 4), torch.inf, dtype=torch.bfloat16), "x: got 16 NaN or Inf values in"),
        (torch.ones(4), "1 dimensions, shape (4,), expected 2"),
        (torch.ones((4, 4), dtype=torch.complex64), "complex64 (complex numbers)"),
        ([torch.ones(3)], "expected paths, or one array per side"),
    ],
)  # fmt: skip
def test_refused(values, message):
    with pytest.raises(InputError) as error:
        load_embeddings(values)
    assert "\n" not in str(error.value)
    assert message in str(error.value)


def test_a_value_that_overflows_names_its_row():
    values = pa.chunked_array([pa.array([[1.0, 2]]), pa.array([[1.0, 2], [1e40, 3]])])
    with pytest.raises(
        InputError, match=r"\(x array row 2\), expected finite numbers that float32"
    ):
        load_embeddings(values)


def test_arrays_need_neither_pyarrow_nor_torch():
    script = (
        "import sys, numpy as np, batchplan.data as d; d.load_embeddings(np.eye(4, dtype='f4'));"
        "print(sorted({'pyarrow', 'torch', 'pandas'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr
