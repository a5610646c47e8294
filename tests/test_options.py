"""Wrong values from Python get the same clear errors as wrong values from the command line."""

import numpy as np
import pytest

import batchplan
from batchplan.options import Range
from batchplan.runtime import Runtime, parse_memory


@pytest.fixture(scope="module")
def embeddings():
    rows = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    return batchplan.load_embeddings(rows)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"batch_size": 64.0}, "batch size: got 64.0, expected an integer"),
        ({"batch_size": "4"}, "batch size: got '4', expected an integer"),
        ({"batch_size": True}, "batch size: got True, expected an integer"),
        ({"batch_size": None}, "batch size: got None, expected an integer"),
        ({"quantile": "x"}, "quantile: got 'x', expected a number"),
        ({"neighbors": 2.5}, "neighbors: got 2.5, expected an integer or None"),
        ({"reverse": 3}, "reverse: got 3, expected True or False"),
        ({"tail": "half"}, "tail: got 'half', expected keep or drop or pad"),
        ({"similarity": 1}, "similarity: got 1, expected cosine or dot"),
        ({"quantiles": 0.9}, "gcbs: no option 'quantiles', expected similarity, batch_size, "),
        ({"seed": 1.5}, "seed: got 1.5, expected an integer"),
        ({"memory": "much"}, "memory: got 'much', expected a size such as 8GB"),
        ({"memory": 0.5}, "memory: got 0.5, expected a number of bytes above 0, or a text"),
        ({"device": None}, "device: got None, expected auto, cpu"),
    ],
)
def test_plan_refuses(embeddings, option, expected):
    with pytest.raises(batchplan.InputError) as error:
        batchplan.plan(embeddings, planner="gcbs", **{"batch_size": 4, **option})
    assert str(error.value).startswith(expected)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"random_trials": 2.5}, "random trials: got 2.5, expected an integer"),
        ({"temperature": "a"}, "temperature: got 'a', expected a number"),
        ({"similarity": "l2"}, "similarity: got 'l2', expected cosine or dot"),
        ({"bogus": 1}, "evaluate: no option 'bogus', expected similarity, "),
    ],
)
def test_evaluate_refuses(embeddings, option, expected):
    plan = batchplan.plan(embeddings, planner="random", batch_size=4)
    with pytest.raises(batchplan.InputError) as error:
        batchplan.evaluate(plan, embeddings, **option)
    assert str(error.value).startswith(expected)


def test_numpy_numbers_are_numbers(embeddings, tmp_path):
    ours = batchplan.plan(embeddings, planner="gcbs", batch_size=4, quantile=0.5, seed=3)
    numpys = batchplan.plan(
        embeddings,
        planner="gcbs",
        batch_size=np.int64(4),
        quantile=np.float64(0.5),
        seed=np.int32(3),
    )
    for name, plan in (("ours", ours), ("numpys", numpys)):
        plan.save(tmp_path / f"{name}.npz")
    assert (tmp_path / "ours.npz").read_bytes() == (tmp_path / "numpys.npz").read_bytes()


def test_memory_is_parsed_in_decimal_and_binary_units():
    sizes = {
        "8GB": 8 * 10**9,
        "512MiB": 512 << 20,
        "1.5g": 15 * 10**8,
        "2000": 2000,
        "1 TB": 10**12,
    }
    assert {text: parse_memory(text) for text in sizes} == sizes
    assert Runtime.of(memory="8GB").memory == Runtime.of(memory=8 * 10**9).memory == 8 * 10**9


def test_an_integer_may_be_too_large_for_a_float():
    assert Range(ge=0).holds(10**400)
    assert not Range(ge=0).holds(-(10**400))
    assert not Range(le=5).holds(10**400)
