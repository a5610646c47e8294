"""The streaming pass against plain NumPy on the whole matrix."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from batchplan.data import validate
from batchplan.data.matrix import RowMatrix, Shard, Side
from batchplan.errors import InputError


def sides(*arrays: np.ndarray, cuts: tuple[int, ...] = ()) -> list[Side]:
    made = []
    for name, array in zip("xy", arrays, strict=False):
        parts = np.split(array, cuts)
        shards = tuple(Shard(f"{name}{i}.npy", name, len(p)) for i, p in enumerate(parts))
        made.append(Side(name, RowMatrix(parts), shards))
    return made


def fingerprint(*arrays: np.ndarray, cuts: tuple[int, ...] = (), threads: int = 2) -> str:
    return validate.check_content(sides(*arrays, cuts=cuts), lambda _rows: None, threads)[0]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of three rows of 4 float16, chunks of two: every bound is met with few rows."""
    monkeypatch.setattr(validate, "BLOCK_BYTES", 24)
    monkeypatch.setattr(validate, "_CHUNK_BYTES", 16)


def test_fingerprint_knows_no_shards_and_no_threads(small_blocks):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((17, 4)).astype(np.float16)
    whole = fingerprint(x)
    assert whole.startswith("b2:")
    assert len(whole) == 3 + 32
    for cut in range(1, 17):
        assert fingerprint(x, cuts=(cut,)) == whole
    assert fingerprint(x, cuts=tuple(range(1, 17)), threads=1) == whole
    assert fingerprint(x, cuts=(2, 3, 11), threads=7) == whole


def test_fingerprint_tells_everything_else_apart(small_blocks):
    x = np.arange(1, 41, dtype=np.float16).reshape(10, 4)
    changed = x.copy()
    changed[7, 2] = -changed[7, 2]
    others = [
        fingerprint(x),
        fingerprint(x, x),
        fingerprint(changed),
        fingerprint(x[::-1].copy()),
        fingerprint(x, changed),
        fingerprint(changed, x),
        fingerprint(x.reshape(20, 2)),
        fingerprint(x.astype(np.float32)),
        fingerprint(x[:-1]),
        fingerprint(x.view(np.float32)),
    ]
    assert len(set(others)) == len(others)


def test_fingerprint_by_hand():
    """A change of the scheme would orphan every plan made before; make it on purpose only."""
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    head = b"x 6 4 float32\ny 6 4 float32\n"
    blocks = blake2b(x.tobytes()).digest() + blake2b((x + 1).tobytes()).digest()
    assert fingerprint(x, x + 1) == f"b2:{blake2b(head + blocks, digest_size=16).hexdigest()}"
    assert fingerprint(x, x + 1) == "b2:705185def456f46bd0c88555d4109f34"


FLOATS = st.sampled_from([np.float16, np.float32]).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9),
        elements=st.sampled_from([0.0, -0.0, 1.0, -2.5, 2**-24, np.nan, -np.nan, np.inf, -np.inf])
        if dtype is np.float16
        else st.floats(width=32),
    )
)


@given(FLOATS)
def test_chunk_agrees_with_isfinite_and_any(chunk):
    bad_rows, bad_values, zero_rows, largest = validate._check_chunk(chunk)
    bad = ~np.isfinite(chunk)
    np.testing.assert_array_equal(bad_rows, np.flatnonzero(bad.any(axis=1)))
    assert bad_values == bad.sum()
    np.testing.assert_array_equal(zero_rows, np.flatnonzero(~chunk.astype(bool).any(axis=1)))
    if not bad.any():
        assert largest == np.abs(chunk).max()


def test_every_float16_pattern():
    patterns = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 1)
    bad_rows, _, zero_rows, _ = validate._check_chunk(patterns)
    np.testing.assert_array_equal(bad_rows, np.flatnonzero(~np.isfinite(patterns[:, 0])))
    np.testing.assert_array_equal(zero_rows, np.flatnonzero(patterns[:, 0] == 0))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_nan_and_inf_are_counted_and_placed(small_blocks, dtype):
    x = np.ones((20, 4), dtype)
    x[3, 1:3] = np.nan
    x[12, 0] = -np.inf
    with pytest.raises(InputError) as error:
        fingerprint(x, cuts=(10,))
    assert "x: got 3 NaN or Inf values in 2 rows (x0.npy row 3, x1.npy row 2)" in str(error.value)


def test_many_bad_rows_make_one_short_line(small_blocks):
    y = np.full((30, 4), np.nan, np.float16)
    with pytest.raises(InputError, match=r"y: got 120 NaN .* row 4 and 25 more") as error:
        fingerprint(np.ones_like(y), y)
    assert "\n" not in str(error.value)


def test_zero_rows_are_remembered_and_progress_adds_up(small_blocks):
    x = np.ones((20, 4), np.float16)
    x[[4, 15]] = 0
    x[15, 2] = -0.0
    steps: list[int] = []
    _, found = validate.check_content(sides(x, 3 * np.ones_like(x)), steps.append)
    zeros = {name: content.zeros for name, content in found.items()}
    assert (zeros["x"].tolist(), zeros["y"].tolist()) == ([4, 15], [])
    assert (found["x"].largest, found["y"].largest) == (1, 3)
    assert sum(steps) == 40
