"""The sorted list that searches of neighbours, batches and rows share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchplan.kernels import insert


@given(st.integers(1, 6), st.lists(st.integers(-3, 3), max_size=20), st.randoms())
def test_keeps_the_largest_and_of_equal_ones_the_lower_name(size, values, random):
    offered = list(enumerate(values))
    random.shuffle(offered)
    kept, names = np.full(size, -np.inf), np.full(size, -1)
    for name, value in offered:
        if (-value, name) < (-kept[-1], names[-1]):
            insert(float(value), name, kept, names)
    expected = sorted((-value, name) for name, value in offered)[:size]
    filled = names >= 0
    assert list(zip(-kept[filled], names[filled], strict=True)) == expected
