"""What an evaluation refuses, and how it says so."""

import numpy as np
import pytest

from batchplan import InputError, ResourceError
from batchplan.data import Embeddings
from batchplan.plans import Batching, Plan
from batchplan.quality import EvaluationOptions, evaluate
from batchplan.quality.losses.all_rows import global_statistics
from batchplan.quality.pairs import unguarded_pairs
from batchplan.runtime import Runtime


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", 0.0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", 1e-9),
        ("similarity", "euclidean"),
        ("random_trials", 1),
        ("relative_margin", -0.1),
        ("relative_margin", 1.5),
        ("relative_margin", float("nan")),
        ("relative_margin", float("-inf")),
        ("relative_margin", "0.1"),
        ("absolute_margin", -0.05),
        ("absolute_margin", float("nan")),
        ("absolute_margin", float("inf")),
        ("max_score", float("nan")),
        ("max_score", float("inf")),
        ("max_score", "0.9"),
    ],
)
def test_options_out_of_range(option, value):
    with pytest.raises(InputError, match=f"^{option.replace('_', ' ')}: got {value!r}, expected"):
        EvaluationOptions(**{option: value})


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"relative_margin": 0.1, "absolute_margin": 0.0},
            "relative margin 0.1: given with absolute margin 0.0, expected one limit; leave out "
            "one of the two",
        ),
        (
            {"relative_margin": 0.0, "max_score": 0.5},
            "relative margin 0.0: given with max score 0.5",
        ),
        (
            {"absolute_margin": 0.1, "max_score": 0.0},
            "absolute margin 0.1: given with max score 0.0",
        ),
        (dict.fromkeys(("relative_margin", "absolute_margin", "max_score"), 0.2), "relative"),
    ],
)
def test_two_limits_exclude_each_other(limits, said):
    with pytest.raises(InputError) as error:
        EvaluationOptions(**limits)
    assert str(error.value).startswith(said)


def test_plan_of_other_data(helpers):
    plan = helpers.make_plan(helpers.clustered(20), 4)
    with pytest.raises(InputError, match="20 rows"):
        evaluate(plan, helpers.clustered(21))
    with pytest.raises(InputError, match="fingerprint"):
        evaluate(plan, helpers.clustered(20, seed=1))


def test_row_of_zeros_has_no_cosine():
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    x[3] = 0
    embeddings = Embeddings.from_arrays(x)
    plan = Plan.cut(np.arange(8), Batching(4), num_rows=8)
    with pytest.raises(InputError, match="row 3"):
        evaluate(plan, embeddings)
    assert evaluate(plan, embeddings, similarity="dot").loss_train > 0


def test_inner_products_beyond_float32():
    x = np.full((4, 2), 1e18, np.float32)
    plan = Plan.cut(np.arange(4), Batching(2), num_rows=4)
    with pytest.raises(InputError, match="exceeds float32"):
        unguarded_pairs(Embeddings.from_arrays(x), "dot", 0.05, Runtime())
    with pytest.raises(InputError, match=r"rows of length up to 1\.4e\+20 "):
        evaluate(plan, Embeddings.from_arrays(100 * x), similarity="dot")
    assert evaluate(plan, Embeddings.from_arrays(x)).loss_train == pytest.approx(np.log(2))


def test_too_little_memory(helpers):
    embeddings = helpers.clustered(20)
    with pytest.raises(ResourceError, match=r"20 rows need .* of memory and .* is left"):
        evaluate(helpers.make_plan(embeddings, 4), embeddings, memory=10**6)


def test_too_little_memory_for_the_hard_negatives(helpers):
    pairs = unguarded_pairs(helpers.clustered(300), "cosine", 0.05, Runtime(device="cpu"))
    with pytest.raises(ResourceError, match="300 rows with 200 hard negatives each need"):
        global_statistics(pairs, 201, Runtime(memory=100_000), lambda _: None)
