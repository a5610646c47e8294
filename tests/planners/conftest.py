"""Data that planners meet, each with the options that suit so few rows."""

import numpy as np
import pytest

from batchplan.data import Embeddings


def batch_of_row(plan):
    """int64 (N,): the first batch of each row, -1 for none."""
    first = np.full(plan.metadata.num_rows, -1)
    first[plan.rows[::-1]] = plan.batch_of_entry()[::-1]
    return first


def _noise(n, d, seed):
    return np.random.default_rng(seed).standard_normal((n, d))


def _clusters(n, d, count, spread, seed=0):
    """Rows around ``count`` centres, and the centre of each, in shuffled order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % count)
    return rng.standard_normal((count, d))[labels], labels, spread * _noise(n, d, seed + 1)


def plain(n=90, d=8):
    x = _noise(n, d, 0)
    return x, x + 0.5 * _noise(n, d, 1)


def common_direction(n=90, d=8):
    x = _noise(n, d, 0) + 4
    return x, x + 0.5 * _noise(n, d, 1)


def single(n=90, d=8):
    return (_noise(n, d, 0),)


def duplicates(n=90, d=4):
    x, y = np.round(_noise(n, d, 0)) + 0.25, np.round(_noise(n, d, 1)) + 0.25
    x[n // 2 :], y[n // 2 :] = x[: n - n // 2], y[: n - n // 2]
    return x, y


def identical(n=90, d=3):
    return np.ones((n, d)), np.ones((n, d))


def hub(n=90, d=8):
    x, y = _noise(n, d, 0) + 1, _noise(n, d, 1) + 1
    x[7], y[7] = y.mean(0), x.mean(0)
    return x, y


def apart(n=90, d=16):
    """Tight clusters with nothing between them: the graph falls to pieces."""
    centres, _, noise = _clusters(n, d, 9, 0.01)
    return centres + noise, centres - noise


def one_dimension(n=90):
    return _noise(n, 1, 0), _noise(n, 1, 1)


DATA = (plain, common_direction, single, duplicates, identical, hub, apart, one_dimension)


@pytest.fixture(params=DATA, ids=lambda make: make.__name__)
def embeddings(request):
    return Embeddings.from_arrays(*(side.astype(np.float32) for side in request.param()))


@pytest.fixture
def make():
    """A function that makes plain data of a size and a dtype."""

    def of(n, dtype=np.float32, data=plain):
        return Embeddings.from_arrays(*(side.astype(dtype) for side in data(n)))

    return of


@pytest.fixture
def planted():
    """Rows in clusters of a size, shuffled, and the cluster of each row."""

    def of(count, size, spread=0.05, d=32):
        centres, labels, noise = _clusters(count * size, d, count, spread)
        x, y = centres + noise, centres + spread * _noise(count * size, d, 5)
        return Embeddings.from_arrays(x.astype(np.float32), y.astype(np.float32)), labels

    return of
