"""Equal rows, against a dictionary of their values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.data import RowMatrix, duplicates
from batchplan.data.duplicates import document_codes, first_equals, repeated_codes
from batchplan.runtime import silent


def duplicate_codes(matrix, *advance):
    return repeated_codes(first_equals(matrix, *advance))


def by_dictionary(rows):
    """Codes from Python's own equality of tuples, where -0.0 equals 0.0."""
    tuples = [tuple(row.tolist()) for row in rows]
    codes, names = [], {}
    for row in tuples:
        codes.append(names.setdefault(row, len(names)) if tuples.count(row) > 1 else -1)
    return codes


@st.composite
def matrices(draw):
    """Few values, so that many rows are equal; in one segment or several."""
    shape = draw(st.integers(1, 30)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.choice([-1.5, -0.0, 0.0, 2.0], shape)
    rows = values.astype(draw(st.sampled_from((np.float16, np.float32))))
    parts = draw(st.integers(1, 3))
    return rows, RowMatrix([part.copy() for part in np.array_split(rows, parts) if len(part)])


@given(matrices())
def test_against_a_dictionary(given_matrix):
    rows, matrix = given_matrix
    codes = duplicate_codes(matrix)
    assert codes.dtype == np.int64
    assert codes.tolist() == by_dictionary(rows)


@pytest.mark.parametrize("kept", [0, 1, 7])
def test_rows_with_the_same_hash_are_told_apart(kept, monkeypatch):
    """Hashes of a few bits: most rows of one hash differ."""
    whole = duplicates._hashes
    monkeypatch.setattr(duplicates, "_hashes", lambda *given: whole(*given) & np.uint64(kept))
    rows = np.random.default_rng(3).integers(-2, 3, (120, 3)).astype(np.float32)
    expected = by_dictionary(rows)
    assert duplicate_codes(RowMatrix([rows])).tolist() == expected
    assert -1 in expected
    assert max(expected) > 20


def test_steps_change_nothing(monkeypatch):
    rows = np.random.default_rng(0).integers(0, 3, (101, 4)).astype(np.float16)
    expected = by_dictionary(rows)
    monkeypatch.setattr(duplicates, "_CHUNK_BYTES", 7 * 32)
    monkeypatch.setattr(duplicates, "_COMPARED_BYTES", 5 * 8)
    told = []
    assert duplicate_codes(RowMatrix([rows]), told.append).tolist() == expected
    assert sum(told) == 101
    assert max(told) == 7


def test_hashes_of_rows_that_differ_differ():
    """Not needed to be right, but to be fast: one value changed, by the least or by a lot."""
    rows = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32).repeat(129, axis=0)
    columns = np.arange(64)
    rows[columns, columns] = np.nextafter(rows[0], np.float32(np.inf))
    rows[64 + columns, columns] *= -1
    assert len(np.unique(duplicates._hashes(RowMatrix([rows]), silent))) == 129


@pytest.mark.parametrize("equal", [True, False])
def test_all_or_none(equal):
    rows = np.ones((50, 8), np.float32) if equal else np.eye(50, dtype=np.float32)
    assert (duplicate_codes(RowMatrix([rows])) == (0 if equal else -1)).all()


def test_documents_are_equal_whatever_type_they_are_stored_in():
    values = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float16)
    other = values[::-1].astype(np.float32)
    codes = document_codes([RowMatrix([values]), RowMatrix([other])])
    assert np.array_equal(codes[0], codes[1, ::-1])
    assert len(np.unique(codes)) == 6
