"""The kernels for CUDA devices, one by one: on a device, or on the CPU by Triton's interpreter."""

import pytest
import torch

from batchplan.data.rows import load_rows

CPU = torch.device("cpu")


def bits_of(words):
    """bool (R, 32 W): the bits of int32 (R, W)."""
    places = torch.arange(32, dtype=torch.int32, device=words.device)
    return (words[:, :, None] >> places & 1).bool().reshape(len(words), -1)


def normal(device, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def dtypes(device):
    # The interpreter's products of bfloat16 are not right.
    fast = torch.bfloat16 if device.type == "cuda" else torch.float16
    return fast, torch.float32


SHAPES = [(1, 1, 1), (2, 3, 2), (1, 4, 3)]  # in tiles


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("narrow", [False, True])
def test_screen(kernels, device, shape, narrow):
    for dtype in dtypes(device):
        tile = kernels.tile_of(dtype)
        rows, columns = shape[0] * tile.rows, shape[1] * tile.columns
        depth = shape[2] * tile.depth
        queries = normal(device, rows, depth).to(dtype)
        keys = normal(device, columns, depth, seed=1).to(dtype)
        terms = normal(device, rows, seed=2), normal(device, columns, seed=3)
        terms[0][-5:] = terms[1][-70:] = -torch.inf
        height = 2 * depth**0.5
        limits = height + normal(device, rows, seed=4), height + normal(device, columns, seed=5)
        if narrow:  # one side alone
            limits[1][:] = torch.inf
        entries = queries.float() @ keys.float().T + terms[0][:, None] + terms[1]
        lowest = torch.minimum(limits[0][:, None], limits[1])
        reach = entries >= lowest
        assert 0.001 < reach.float().mean() < 0.2
        unclear = (entries - lowest).abs() < 1e-3  # the order of a float32 sum decides
        got = bits_of(kernels.screen(queries, keys, terms, limits))
        assert torch.equal(got | unclear, reach | unclear)
        first = shape[1] // 2
        later = kernels.screen(queries, keys, terms, limits, first)
        assert torch.equal(bits_of(later), got[:, first * tile.columns :])


def test_limits_that_are_reached_exactly(kernels, device):
    """Small integers have no rounding errors: an entry that is its limit counts."""
    for dtype in dtypes(device):
        tile = kernels.tile_of(dtype)
        queries = normal(device, tile.rows, tile.depth).round().to(dtype)
        keys = normal(device, tile.columns, tile.depth, seed=1).round().to(dtype)
        terms = [torch.full((len(side),), 3.0, device=device) for side in (queries, keys)]
        limits = [torch.full((len(queries),), 20.0, device=device)]
        limits += [torch.full((len(keys),), 21.0, device=device)]
        entries = queries.float() @ keys.float().T + 6
        assert (entries == 20).any()
        got = bits_of(kernels.screen(queries, keys, terms, limits))
        assert torch.equal(got, entries >= 20)


@pytest.mark.parametrize(
    ("shape", "density"),
    [((1, 1), 0), ((1, 1), 1), ((257, 9), 0.5), ((16, 64), 0.01), ((17, 65), 0.05)],
    ids=str,
)
def test_lists_every_bit_in_order(kernels, device, shape, density):
    bits = torch.rand(shape[0], 32 * shape[1], generator=torch.Generator().manual_seed(0)) < density
    values = bits.reshape(*shape, 32).long() << torch.arange(32)
    words = values.sum(2).to(torch.int32).to(device)
    counts = kernels.count(words, shape[0])
    assert torch.equal(counts.cpu().long(), bits.sum(1))
    rows, columns = kernels.list_pairs(words, counts, 1000, 64)
    where = bits.nonzero()
    assert rows.dtype == columns.dtype == torch.int32
    assert torch.equal(rows.cpu().long(), where[:, 0] + 1000)
    assert torch.equal(columns.cpu().long(), where[:, 1] + 64)


def test_lists_some_rows_alone(kernels, device):
    words = torch.full((40, 2), -1, dtype=torch.int32, device=device)
    part = words[3:5]
    rows, columns = kernels.list_pairs(part, kernels.count(part, 2), 3, 0)
    assert rows.tolist() == [3] * 64 + [4] * 64
    assert columns.tolist() == 2 * list(range(64))


@pytest.mark.parametrize("depth", [1, 31, 128, 200])
@pytest.mark.parametrize("count", [0, 1, 513])
def test_scores_are_rounded_float64_sums(kernels, device, depth, count):
    x, y = normal(device, 50, depth), normal(device, 60, depth, seed=1)
    x[7] *= 1e15
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(50, (count,), generator=generator, dtype=torch.int32).to(device)
    columns = torch.randint(60, (count,), generator=generator, dtype=torch.int32).to(device)
    scores = kernels.score(x, y, rows + 9, columns, 9)
    products = x[rows.long()].double() * y[columns.long()].double()
    exact = products.sum(1)
    assert torch.equal(scores, exact.float())


@pytest.mark.parametrize("name", ["uniform", "near_copies", "hubs", "uneven"])
@pytest.mark.parametrize("normalize", [True, False])
def test_no_entry_claims_too_much(kernels, device, data, name, normalize):
    """Pairs of just the similarity that is their row's or column's limit are never lost."""
    from batchplan.graph.cuda.operands import keys_from, queries_from

    embeddings = data(name)
    n = embeddings.num_rows
    x, y = (load_rows(side, 0, n, device, normalize) for side in (embeddings.x, embeddings.y))
    exact = (x.double() @ y.double().T).float()
    for dtype in dtypes(device):
        if dtype == torch.float16 and not normalize and name == "uneven":
            continue  # beyond its range
        keys = keys_from(y, x.mean(0), y.mean(0), dtype)
        queries = queries_from(x, keys)
        limits = exact.quantile(0.95, 1, interpolation="nearest"), exact.median(0).values
        none = torch.full_like(limits[0], torch.inf)
        for some in ((limits[0], none), (none, limits[1]), limits):
            padded = queries.padded(some[0]), keys.padded(some[1])
            terms = queries.terms, keys.terms
            words = kernels.screen(queries.rounded, keys.rounded, terms, padded)
            got = bits_of(words)
            assert got[:n, :n][exact >= torch.minimum(some[0][:, None], some[1])].all()
            assert not got[n:].any()
            assert not got[:, n:].any()


def test_limits_of_minus_infinity(kernels, device, data):
    """All pairs reach them, and padding none."""
    from batchplan.graph.cuda.operands import keys_from, queries_from

    x = load_rows(data("single").x, 0, 130, device, True)
    keys = keys_from(x, x.mean(0), x.mean(0), torch.float32)
    queries = queries_from(x[:33], keys)
    lowest = torch.full((130,), -torch.inf, device=device)
    limits = queries.padded(lowest[:33]), keys.padded(lowest)
    words = kernels.screen(queries.rounded, keys.rounded, (queries.terms, keys.terms), limits)
    got = bits_of(words)
    assert got[:33, :130].all()
    assert int(got.sum()) == 33 * 130


def test_the_bound_is_of_use(kernels, device, data):
    """Few entries are above the limit whose pairs are not."""
    from batchplan.graph.cuda.operands import keys_from, queries_from

    embeddings = data("related")
    x, y = (load_rows(side, 0, 203, device, True) for side in (embeddings.x, embeddings.y))
    exact = x.double() @ y.double().T
    limit = torch.full((203,), float(exact.quantile(0.99)), device=device)
    for dtype in dtypes(device):
        keys = keys_from(y, x.mean(0), y.mean(0), dtype)
        queries = queries_from(x, keys)
        limits = queries.padded(limit), keys.padded(limit)
        words = kernels.screen(queries.rounded, keys.rounded, (queries.terms, keys.terms), limits)
        assert int(bits_of(words).sum()) < 1.3 * int((exact >= limit).sum())


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.usefixtures("kernels")
def test_the_bound_holds_in_bfloat16(embeddings, normalize):
    """The entries as plain torch computes them, since the interpreter cannot."""
    from batchplan.graph.cuda.operands import keys_from, queries_from

    n = embeddings.num_rows
    x, y = (load_rows(side, 0, n, CPU, normalize) for side in (embeddings.x, embeddings.y))
    exact = (x.double() @ y.double().T).float()
    keys = keys_from(y, x.mean(0), y.mean(0), torch.bfloat16)
    queries = queries_from(x, keys)
    entries = queries.rounded.float() @ keys.rounded.float().T
    entries += queries.terms[:, None] + keys.terms
    assert (entries[:n, :n] >= exact).all()
    assert (entries[n:] == -torch.inf).all()
    assert (entries[:, n:] == -torch.inf).all()
