"""RowMatrix against NumPy indexing of the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.data.matrix import RowMatrix, Shard, Side

LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def make(lengths: list[int], dim: int = 3) -> tuple[RowMatrix, np.ndarray]:
    whole = np.arange(sum(lengths) * dim, dtype=np.float32).reshape(-1, dim)
    return RowMatrix(np.split(whole.copy(), np.cumsum(lengths)[:-1])), whole


@given(LENGTHS, st.integers(-40, 40), st.integers(-40, 40))
def test_rows_equal_slices(lengths, start, stop):
    matrix, whole = make(lengths)
    got = matrix.rows(start, stop)
    assert got.flags.c_contiguous
    assert got.dtype == whole.dtype
    np.testing.assert_array_equal(got, whole[start:stop])


@given(LENGTHS, st.data())
def test_take_equals_fancy_indexing(lengths, data):
    matrix, whole = make(lengths)
    wanted = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=20))
    got = matrix.take(wanted)
    assert got.shape == (len(wanted), 3)
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, whole[np.array(wanted, np.int64)])


def test_rows_inside_one_segment_are_a_read_only_view():
    segments = [np.ones((4, 2), np.float16), np.ones((4, 2), np.float16)]
    view = RowMatrix(segments).rows(5, 8)
    assert np.shares_memory(view, segments[1])
    assert not view.flags.writeable
    assert segments[1].flags.writeable, "the caller's own array stays writable"


@pytest.mark.parametrize(
    "wanted",
    [[-1], [7], [0.5], [[0]], [True, False]],
    ids=["below", "above", "float", "2d", "mask"],
)
@pytest.mark.parametrize("lengths", [[7], [3, 4]])
def test_take_refuses_what_is_no_row(lengths, wanted):
    with pytest.raises(IndexError, match="expected"):
        make(lengths)[0].take(wanted)


def test_shape_and_length():
    matrix, _ = make([3, 4])
    assert (matrix.shape, len(matrix), repr(matrix)) == ((7, 3), 7, "RowMatrix(7 x 3 float32)")


def test_place_names_the_shard_and_its_row():
    matrix, _ = make([3, 4])
    side = Side("x", matrix, (Shard("a.npy", "x", 3), Shard("b.npy", "x", 4)))
    assert [side.place(row) for row in (0, 2, 3, 6)] == [
        "a.npy row 0",
        "a.npy row 2",
        "b.npy row 0",
        "b.npy row 3",
    ]
