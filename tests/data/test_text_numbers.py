"""Texts as numbers, against a dictionary of Python."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.data import text_numbers as module
from batchplan.data.text_numbers import text_numbers

WORDS = st.text("ab\0é", max_size=19)
KINDS = st.sampled_from([pa.string(), pa.large_string()])


def expected(texts):
    numbers = {}
    return [numbers.setdefault(text, len(numbers)) for text in texts]


@given(st.lists(st.tuples(KINDS, st.lists(WORDS, max_size=40), st.integers(0, 5)), max_size=5))
def test_equal_texts_have_equal_numbers(drawn):
    parts = [pa.array(texts, kind).slice(start) for kind, texts, start in drawn]
    texts = [text for part in parts for text in part.to_pylist()]
    assert text_numbers(parts).tolist() == expected(texts)


@pytest.mark.parametrize("repeats", [1, 3])
def test_tables_grow(repeats):
    texts = [f"text {i}" for i in range(60_000)] * repeats
    assert text_numbers([pa.array(texts)]).tolist() == expected(texts)


def test_texts_with_the_same_hash_are_told_apart(monkeypatch):
    """With the kernels as they are, in Python: every text has the same hash."""
    numbers = getattr(module._numbers, "py_func", module._numbers)
    source = {**numbers.__globals__, "_hash": lambda start, size: module.np.uint64(1 << 32)}
    alike = type(numbers)(numbers.__code__, source)
    monkeypatch.setattr(module, "_numbers", alike)
    texts = ["a", "b", "a", "", "long enough for words", "long enough for Words", ""]
    assert text_numbers([pa.array(texts[:3]), pa.array(texts[3:])]).tolist() == expected(texts)
