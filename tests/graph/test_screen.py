"""The sign of a screened entry never lies: the error bound holds, whatever the data."""

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from batchplan.data.rows import load_rows, mean_row, to_float32
from batchplan.graph.screen import (
    ALIGNMENT,
    keys_from,
    least_entry,
    queries_from,
    screening_dtype,
    sure_entry,
)
from batchplan.kernels import ordered
from batchplan.planners.papers.gcbs.scan import _as_bits, scan_cpu

DTYPES = (torch.bfloat16, torch.float32)
CPU = torch.device("cpu")
KINDS = (
    "gaussian", "constant", "copies", "equal", "integers", "aligned", "cancelling", "outlier",
    "zero", "no mean",
)  # fmt: skip


def rows_of(kind, rng, n, d, scale, mean):
    x = rng.standard_normal((n, d)) + mean * rng.standard_normal(d)
    if kind == "constant":  # every number of a row is the same
        x = np.repeat(x[:, :1], d, axis=1)
    elif kind == "copies":  # closer to each other than the bits of float32 can tell
        x = x[:1] + 10.0 ** rng.integers(-8, -2) * rng.standard_normal((n, d))
    elif kind == "equal":
        x = np.repeat(x[:1], n, axis=0)
    elif kind == "integers":
        x = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == "aligned":  # just above half way between two bfloat16, so that all round up
        x = np.sign(x) * (1 + 2.0**-8 + 2.0**-20) * 2.0 ** rng.integers(-2, 3, (n, d))
    elif kind == "cancelling":  # the mean is large, and orthogonal to all that differs
        x = np.ones((n, d))
        x[:, ::2] += (noise := rng.standard_normal((n, (d + 1) // 2)))
        x[:, 1::2] -= noise[:, : d // 2]
    elif kind == "outlier":
        x[0] *= 1000
    elif kind == "zero":
        x[:] = 0
    elif kind == "no mean":
        x = np.concatenate([x[: n // 2], -x[: n // 2], x[: n % 2]])
    return (x * scale).astype(np.float32)


@st.composite
def products(draw):
    """float32 rows X and Y and the means that centre them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(1, 40)), draw(st.sampled_from((1, 2, 3, 8, 33)))
    scale = draw(st.sampled_from((1e-10, 1e-3, 1.0, 1e3, 1e15)))
    means, kinds = st.sampled_from((0, 1, 1e3)), st.sampled_from(KINDS)
    sides = [
        torch.from_numpy(rows_of(draw(kinds), rng, n, d, scale, draw(means))) for _ in range(2)
    ]
    if draw(st.booleans()):
        sides = [to_float32(side, CPU, True) if bool(side.any(1).all()) else side for side in sides]
    if draw(st.booleans()):
        sides[1] = sides[0]
    longest = [float(side.double().norm(dim=1).max()) for side in sides]
    assume(longest[0] * longest[1] < 1e37 and max(longest) < 1e18)  # whose square float32 holds
    return rng, sides[0], sides[1]


@settings(max_examples=120)
@given(products(), st.sampled_from(DTYPES))
def test_no_entry_claims_too_much(problem, dtype):
    rng, x, y = problem
    n = len(y)
    sims = (x.double() @ y.double().T).float().numpy()
    keys = keys_from(y, x.double().mean(0).float(), y.double().mean(0).float(), dtype)
    assert keys.operand.shape[0] % ALIGNMENT == 0
    # Thresholds that are similarities: pairs of just this similarity must not be lost.
    for lower, upper in np.sort(rng.choice(sims.ravel(), (4, 2)), axis=1).tolist():
        queries = queries_from(x, keys, lower, upper)
        tile = (queries.operand @ keys.operand.T).float().numpy()
        assert not np.isnan(tile).any()
        positive = ~np.signbit(tile)
        assert positive[:, :n][sims >= lower].all()
        assert not positive[:, n:].any()
        certain = tile[:, :n] > queries.certain
        assert (sims[certain] > upper).all()
    for lower in (-np.inf, -3.4e38):
        queries = queries_from(x, keys, lower, np.inf)
        tile = (queries.operand @ keys.operand.T).float().numpy()
        assert not np.signbit(tile[:, :n]).any()
        assert np.signbit(tile[:, n:]).all()
        assert not (tile > queries.certain).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_keep_the_lengths_that_bound_the_error(dtype):
    y = torch.from_numpy(np.random.default_rng(0).standard_normal((20, 8), np.float32))
    keys = keys_from(y, torch.zeros(8), torch.zeros(8), dtype)
    rounded = y.to(dtype).double()
    for kept, exact in [
        (keys.longest, rounded.norm(dim=1)), (keys.residue, (y.double() - rounded).norm(dim=1)),
        (keys.length, y.double().norm(dim=1)),
    ]:  # fmt: skip
        assert kept == pytest.approx(float(exact.max()), rel=1e-6)


def without_a_mean(seed):
    rng = np.random.default_rng(seed)
    x, y = (torch.from_numpy(rows_of("no mean", rng, 30, 3, 1e-10, 0)) for _ in range(2))
    return rng, x, y


@settings(max_examples=120)
@given(products(), st.sampled_from(DTYPES))
@example(without_a_mean(14), torch.float32)  # when the lengths of float32 rows were taken as zero
def test_no_limit_claims_too_much(problem, dtype):
    rng, x, y = problem
    n = len(y)
    sims = (x.double() @ y.double().T).float().numpy()
    keys = keys_from(y, x.double().mean(0).float(), y.double().mean(0).float(), dtype)
    keys = keys.among(some := np.sort(rng.choice(n, rng.integers(1, n + 1), replace=False)))
    sims = sims[:, some]
    middle, dropped = max(0.0, float(np.median(sims))), 32 - 8 * dtype.itemsize
    queries = queries_from(x, keys, middle, np.inf)
    tile = (queries.operand @ keys.operand.T).float()
    entries = ordered(tile.numpy().view(np.int32)) >> dropped
    error = float(queries.error.max())
    for threshold in (*rng.choice(sims.ravel(), 4), np.float32(-np.inf)):
        reached = entries >= least_entry(threshold, middle, dropped)
        assert reached[:, : len(some)][sims >= threshold].all()
        assert not reached[:, len(some) :].any()
        if np.isfinite(threshold):
            sure = entries[:, : len(some)] >= sure_entry(threshold, middle, error, dropped)
            assert (sims[sure] >= threshold).all()


@settings(max_examples=60)
@given(products(), st.sampled_from(DTYPES), st.sampled_from((ALIGNMENT, 2 * ALIGNMENT, 1024)))
def test_a_scan_finds_what_brute_force_does(problem, dtype, width):
    rng, x, y = problem
    keys = keys_from(y, x.double().mean(0).float(), y.double().mean(0).float(), dtype)
    sims = (x.double() @ y.double().T).float().numpy()
    lower = float(rng.choice(sims.ravel()))
    first = int(rng.integers(len(x)))
    queries = queries_from(x[first:], keys, lower, np.inf)
    block = scan_cpu(queries, first, keys, lower, sims.size, width)
    listed = np.zeros(sims.shape, bool)
    rows = np.repeat(np.arange(len(x) - first), block.counts)
    listed[first + rows, block.columns.numpy()] = True
    # The last bit of a score hangs on the order of a sum, seldom but for sums that cancel.
    near = np.abs(sims - lower) <= 1e-12 * float(x.norm(dim=1).max() * y.norm(dim=1).max())
    wanted = (sims >= lower) & ~np.eye(len(x), dtype=bool)
    wanted[:first] = False
    assert np.array_equal(listed | near, wanted | near)
    assert block.columns.dtype == torch.int32
    assert block.certain == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_certain_goes_without_a_score(data, dtype):
    embeddings = data("related")
    x, y = (load_rows(side, 0, 203, CPU, True) for side in (embeddings.x, embeddings.y))
    keys = keys_from(y, x.mean(0), y.mean(0), dtype)
    sims = (x.double() @ y.double().T).float()
    lower, upper = torch.quantile(sims, torch.tensor([0.7, 0.9])).tolist()
    queries = queries_from(x[64:], keys, lower, upper)
    block = scan_cpu(queries, 64, keys, lower, 203 * 203, 64)
    assert 0 < block.certain < len(block.scores)
    assert int(block.scores.isinf().sum()) == block.certain
    rows = 64 + torch.repeat_interleave(torch.arange(139), block.counts)
    exact = sims[rows, block.columns.long()]
    unscored = block.scores.isinf()
    assert torch.equal(block.scores[~unscored], exact[~unscored])
    assert (exact[unscored] > upper).all()


def test_a_scan_stops_at_its_limit(data):
    x = load_rows(data("identical").x, 0, 70, CPU, True)
    keys = keys_from(x, x.mean(0), x.mean(0), torch.float32)
    queries = queries_from(x, keys, 0.5, np.inf)
    assert scan_cpu(queries, 0, keys, 0.5, 70 * 69 - 1, ALIGNMENT) is None
    assert scan_cpu(queries, 0, keys, 0.5, 70 * 69, ALIGNMENT).counts.tolist() == [69] * 70


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0.0, 1.0, 1 + 1e-9, 0.3, 1e-30, 77777.7, np.inf])
def test_bits_round_up(dtype, value):
    bits = torch.int16 if dtype == torch.bfloat16 else torch.int32
    number = float(torch.tensor(_as_bits(value, dtype), dtype=bits).view(dtype))
    assert number >= value
    assert number <= value * (1 + 2.0**-7)


def test_rows_are_copied_and_normalised(data):
    embeddings = data("half")
    rows = load_rows(embeddings.x, 3, 9, CPU, True)
    assert rows.dtype == torch.float32
    assert np.allclose(rows.norm(dim=1), 1)
    plain = load_rows(embeddings.x, 3, 9, CPU, False)
    assert np.array_equal(plain, embeddings.x.rows(3, 9))
    plain.zero_()
    assert embeddings.x.rows(3, 9).any()


def test_mean_row(data):
    embeddings = data("related")
    steps = []
    mean = mean_row(embeddings.x, CPU, False, steps.append)
    assert np.allclose(mean, embeddings.x.rows(0, 203).mean(0, dtype=np.float64), rtol=1e-6)
    assert sum(steps) == 203


def test_screening_dtype_of_the_cpu(monkeypatch):
    assert screening_dtype(CPU) in DTYPES
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert screening_dtype(CPU) == torch.float32
