"""Rows against all rows, against loops in float64 and against itself in other pieces."""

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.quality.losses import all_rows, tiles
from batchplan.quality.losses.all_rows import global_statistics
from batchplan.quality.losses.exponentials import LARGEST_POWER, STEP, Kept, scale_of, take_in
from batchplan.quality.losses.largest import Largest
from batchplan.quality.pairs import unguarded_pairs
from batchplan.runtime import Runtime

FIELDS = ("positive", "log_sum", "oracle", "hardest")


def measured(embeddings, similarity="cosine", temperature=0.05, batch_size=8):
    runtime = Runtime(device="cpu")
    pairs = unguarded_pairs(embeddings, similarity, temperature, runtime)
    return global_statistics(pairs, batch_size, runtime, lambda _: None)


def as_bytes(found):
    return [getattr(side, name).tobytes() for side in found for name in FIELDS]


def expected(S, temperature, batch_size):
    """positive, log_sum and oracle of one direction, and the ten hardest."""
    n = len(S)
    logits = S / temperature
    order = np.argsort(-S, axis=1, kind="stable")
    order = np.array([row[row != i] for i, row in enumerate(order)]).reshape(n, n - 1)
    seen = np.column_stack((np.arange(n), order[:, : batch_size - 1]))
    oracle = np.logaddexp.reduce(np.take_along_axis(logits, seen, 1), axis=1)
    whole = np.logaddexp.reduce(logits, axis=1)
    return np.diagonal(logits), whole, oracle, order[:, :10]


def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "BLOCK_ROWS", 64)
    monkeypatch.setattr(tiles, "BLOCK_COLUMNS", 128)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n", [2, 3, 63, 64, 65, 200, 517])
def test_against_loops(helpers, monkeypatch, n, paired):
    small_tiles(monkeypatch)
    embeddings = helpers.clustered(n, paired=paired)
    S = helpers.dense(embeddings, "cosine")
    for found, side in zip(measured(embeddings), (S, S.T), strict=True):
        *values, hardest = expected(side, 0.05, 8)
        for name, value in zip(FIELDS, values, strict=False):
            assert getattr(found, name) == pytest.approx(value, abs=2e-5), name
        assert found.hardest.tolist() == hardest.tolist()


@pytest.mark.parametrize("temperature", [1e-6, 0.0017, 0.0016, 0.01, 1.0, 1e6])
def test_extreme_temperatures(helpers, temperature):
    """Below 0.00168, powers would leave the range of float64: the running form takes over."""
    embeddings = helpers.clustered(150)
    assert (scale_of(temperature, 1.0) is None) == (temperature < 0.00168)
    S = helpers.dense(embeddings, "cosine")
    for found, side in zip(measured(embeddings, temperature=temperature), (S, S.T), strict=True):
        _, whole, oracle, _ = expected(side, temperature, 8)
        assert np.abs(found.log_sum - whole).max() <= 4e-7 / temperature + 1e-6
        assert np.abs(found.oracle - oracle).max() <= 4e-7 / temperature + 1e-6


@pytest.mark.parametrize("length", [1e-12, 3.0, 1e4, 1e17])
def test_inner_products_of_any_length(helpers, length):
    plain = helpers.clustered(90)
    x, y = (side.rows(0, 90).astype(np.float32) * np.float32(length) for side in (plain.x, plain.y))
    embeddings = Embeddings.from_arrays(x, y)
    S = helpers.dense(embeddings, "dot")
    largest = np.abs(S).max()
    for found, side in zip(measured(embeddings, "dot", 1.0), (S, S.T), strict=True):
        _, whole, _, _ = expected(side, 1.0, 8)
        assert np.abs(found.log_sum - whole).max() <= 1e-6 * largest + 1e-6


@pytest.mark.parametrize("paired", [True, False])
def test_same_bytes_whatever_the_threads_and_the_memory(use_threads, helpers, monkeypatch, paired):
    """Strips of columns, where those of all do not fit, add up in the same order."""
    small_tiles(monkeypatch)
    embeddings = helpers.clustered(517, paired=paired, copies=40)
    whole = as_bytes(measured(embeddings))
    for threads in (1, 2, 3):
        use_threads(threads)
        assert as_bytes(measured(embeddings)) == whole
    monkeypatch.setattr(tiles, "_MOST_BYTES", 1)  # the narrowest strips
    assert as_bytes(measured(embeddings)) == whole


def test_close_to_the_running_form(helpers, monkeypatch):
    embeddings = helpers.clustered(300)
    here = measured(embeddings, batch_size=40)
    monkeypatch.setattr(all_rows, "scale_of", lambda temperature, bound: None)
    for one, other in zip(here, measured(embeddings, batch_size=40), strict=True):
        assert np.abs(one.log_sum - other.log_sum).max() < 5e-6
        assert np.abs(one.oracle - other.oracle).max() < 5e-6
        assert (one.hardest == other.hardest).mean() > 0.999


@pytest.mark.parametrize("power", [1.0, 30.0, LARGEST_POWER])
def test_errors_of_the_exponentials(power):
    """Within what the file promises, and with no sum lost at the ends of the range."""
    temperature = np.log2(np.e) / power
    rng = np.random.default_rng(0)
    tile = rng.uniform(-1, 1, (64, 2 * STEP)).astype(np.float32)
    tile[0, :] = -1
    scale = scale_of(temperature, 1.0)
    logits = tile.astype(np.float64) / temperature
    width = 100
    logits[:, width:] = -np.inf
    logits[np.arange(64), np.arange(64)] = -np.inf  # pairs of a row with itself
    rows, columns = Largest(64, 5), Largest(2 * STEP, 5)
    of_rows, of_columns = np.zeros(64), np.zeros(2 * STEP)
    tile[:, width:] = -np.inf
    np.fill_diagonal(tile, -np.inf)
    hidden = (rng.random(tile.shape) < 0.1).astype(np.uint8)
    of_allowed, of_others = np.zeros(64), np.zeros(2 * STEP)
    take_in(
        tile, hidden, 0, 0, scale,
        Kept(5, of_rows, of_allowed, rows.arrays), Kept(5, of_columns, of_others, columns.arrays),
    )  # fmt: skip
    allowed = 2.6e-9 + 1.3e-7 + power * 6e-8
    assert np.abs(np.log(of_rows) - np.logaddexp.reduce(logits, axis=1)).max() < allowed
    seen = np.where(hidden, -np.inf, logits)
    assert np.abs(np.log(of_allowed) - np.logaddexp.reduce(seen, axis=1)).max() < allowed
    for found, terms in ((of_columns, logits), (of_others, seen)):
        expected = np.logaddexp.reduce(terms[:, :width], axis=0)
        assert np.abs(np.log(found[:width]) - expected).max() < allowed


def test_rooms_that_are_filled_by_columns(helpers):
    """Many equal values, in no order of the columns: the rule decides, not the order."""
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, (40, 600)).astype(np.float32)
    order = np.argsort(-values, axis=1, kind="stable")[:, :70]
    kept = Largest(40, 70)
    for start in (512, 0, 256, 128, 384):
        part = values[:, start : start + 128].copy()
        kept.offer(torch.from_numpy(part), start)
    found, where = kept.sorted()
    assert where.tolist() == order.tolist()
    assert found.tolist() == np.take_along_axis(values, order, axis=1).tolist()
