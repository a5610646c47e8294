"""The sampled guess of the threshold."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import device

from batchplan.planners.papers.gcbs.threshold import bracket, sample_similarities


@given(
    st.integers(0, 2**32),
    st.floats(0.001, 0.999),
    st.sampled_from(("normal", "uniform", "few values")),
)
def test_holds_the_threshold_of_random_samples(seed, share, kind):
    rng = np.random.default_rng(seed)
    everything = {
        "normal": lambda: rng.standard_normal(40_000),
        "uniform": lambda: rng.random(40_000),
        "few values": lambda: rng.integers(0, 5, 40_000),
    }[kind]()
    everything = np.sort(everything.astype(np.float32))
    edges = max(1, round(share * 40_000))
    threshold = everything[-edges]
    guess = bracket(np.sort(rng.choice(everything, 5000, replace=False)), edges, 40_000, 1)
    assert guess.lower <= threshold <= guess.upper


def test_is_narrow_where_the_sample_is_large():
    sample = np.linspace(0, 1, 10**6, dtype=np.float32)
    guess = bracket(sample, 10**4, 10**6, 1)
    assert 0.989 < guess.lower < 0.99 < guess.upper < 0.991


def test_widens():
    sample = np.linspace(0, 1, 10**5, dtype=np.float32)
    guesses = [bracket(sample, 10**4, 10**5, widening) for widening in (1, 4, 16, 64)]
    for narrow, wide in pairwise(guesses):
        assert wide.lower <= narrow.lower < narrow.upper <= wide.upper
    assert guesses[-1].upper == np.inf


@pytest.mark.parametrize(
    ("edges", "lower", "upper"),
    [(1, 0.0, np.inf), (30_000, -np.inf, 1.0), (29_999, -np.inf, 1.0)],
)
def test_open_ends(edges, lower, upper):
    """Past the ends of the sample nothing is known."""
    sample = np.linspace(0, 1, 300, dtype=np.float32)
    guess = bracket(sample, edges, 30_000, 1)
    assert guess.lower == -np.inf if lower == -np.inf else lower < guess.lower < 1
    assert guess.upper == np.inf if upper == np.inf else 0 < guess.upper < upper


def test_a_wide_enough_guess_is_everything():
    """So that the search for the threshold ends."""
    sample = np.ones(1000, np.float32)
    guess = bracket(sample, 500, 1000, 4.0**6)
    assert (guess.lower, guess.upper) == (-np.inf, np.inf)


@pytest.mark.parametrize("name", ["gaussian", "single", "half", "line"])
@pytest.mark.parametrize("size", [2, 3, 300])
def test_samples_are_off_diagonal_similarities(data, brute, name, size):
    embeddings = data(name, size, 4 if name != "line" else 1)
    sample = sample_similarities(embeddings, device("cpu"), True)
    everything = brute.similarities(embeddings)
    everything = np.sort(everything[~np.eye(size, dtype=bool)])
    assert sample.size
    place = np.searchsorted(everything, sample).clip(1, len(everything) - 1)
    nearest = np.minimum(abs(everything[place] - sample), abs(everything[place - 1] - sample))
    assert nearest.max() < 1e-6
    if size == 300 and name != "line":
        middle = np.quantile(sample, [0.1, 0.5, 0.9])
        assert np.allclose(middle, np.quantile(everything, [0.1, 0.5, 0.9]), atol=0.05)


def test_fewer_blocks_where_edges_are_many(data):
    embeddings = data("gaussian", 2000, 4)
    shares = (0.0, 0.001, 0.02, 0.5)
    sizes = [sample_similarities(embeddings, device("cpu"), True, share).size for share in shares]
    assert sizes[0] == sizes[1] > sizes[2] > sizes[3]
    assert sizes[2] * 0.02 > 30_000
