"""Figures that are estimated from a sample of the rows."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from batchplan import Embeddings, InputError, evaluate, plan
from batchplan.plans import Batching, Plan
from batchplan.quality import EvaluationOptions, RowFacts, evaluate_plans
from batchplan.quality.losses import all_rows
from batchplan.quality.losses.exponentials import scale_of
from batchplan.quality.metrics import texts, value_of
from batchplan.quality.options import ALL_UP_TO, USUAL_SAMPLE
from batchplan.quality.pairs import unguarded_pairs
from batchplan.quality.recall import hard_negative_recall, membership
from batchplan.quality.sample import Sample
from batchplan.runtime import Runtime

ESTIMATED = {
    "loss_global", "gap", "gap_random", "gap_reduction", "hardness", "loss_oracle", "oracle_share",
    "hard_negative_recall.1", "hard_negative_recall.10", "bound_36", "bound_37", "edge_recall",
    "positive_probability_global",
}  # fmt: skip
GUARDED = {f"guard.{name}" for name in ("loss_global", "gap")}


def pairs(n, d=16, seed=0, paired=True):
    """Pairs around centres of unequal size, so that rows differ in how hard they are."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((max(2, n // 40), d))
    own = centres[(draw.random(n) ** 2 * len(centres)).astype(int)]
    x, y = (own + draw.uniform(0.3, 2, (n, 1)) * draw.standard_normal((n, d)) for _ in range(2))
    y = (x + y) / 2
    return Embeddings.from_arrays(x.astype(np.float32), y.astype(np.float32) if paired else None)


def shuffled(n, size, seed=0):
    return Plan.cut(np.random.default_rng(seed).permutation(n), Batching(size), num_rows=n)


@pytest.mark.parametrize("paired", [True, False])
def test_estimates_are_within_four_standard_errors_of_8_000_rows(paired):
    """Four: by Chebyshev's inequality alone, 1 in 16 could be outside; if normal, 1 in 16,000."""
    embeddings = pairs(8000, paired=paired)
    own = plan(embeddings, planner="cluster", batch_size=64)
    options = {"random_trials": 2, "device": "cpu", "guard": False}
    exact = evaluate(own, embeddings, sample=0, **options).to_dict()
    found = evaluate(own, embeddings, sample=2000, **options)
    figures = found.to_dict()
    assert (found.sample, figures["sample"]) == (2000, 2000)
    assert figures["standard_errors"].keys() == ESTIMATED
    for name, error in figures["standard_errors"].items():
        # Where y is x, the largest similarity of each row is that of its positive.
        assert (error == 0) == (not paired and name.startswith("bound")), name
        assert error < 0.05 * max(1, abs(value_of(exact, name))), name
        assert abs(value_of(figures, name) - value_of(exact, name)) <= 4 * error, name
    # What the batches hold is exact.
    assert figures["bandwidth"] is None  # needs all edges
    not_exact = {name.split(".")[0] for name in ESTIMATED} | {"bandwidth"}
    for name in exact.keys() - not_exact:
        assert figures[name] == exact[name], name


def test_two_standard_errors_cover_the_exact_figures():
    """Of 120 seeds, an interval of two standard errors covers in as many as a binomial with the
    normal distribution's 95.45% does, but for one chance in 10,000 for each figure."""
    embeddings, seeds = pairs(600, d=8), 120
    own = plan(embeddings, planner="cluster", batch_size=20)
    names = sorted(ESTIMATED | GUARDED | {"guard.false_negatives_random"})
    options = {"random_trials": 2, "relative_margin": 0.05, "device": "cpu"}
    exact = evaluate(own, embeddings, **options).to_dict()
    covered = dict.fromkeys(names, 0)
    errors, misses = ({name: [] for name in names} for _ in range(2))
    for seed in range(seeds):
        found = evaluate(own, embeddings, sample=120, seed=seed, **options).to_dict()
        _with_random_plans_of(exact, found)
        for name in names:
            miss = value_of(found, name) - value_of(exact, name)
            error = found["standard_errors"][name]
            covered[name] += abs(miss) <= 2 * error
            errors[name].append(error)
            misses[name].append(miss)
    fewest = binom.ppf(1e-4, seeds, 0.9545)
    assert {name: count for name, count in covered.items() if count < fewest} == {}
    for name in names:  # no bias, and no interval that is wider than it need be
        spread = np.std(misses[name])
        assert abs(np.mean(misses[name])) < 4 * spread / np.sqrt(seeds), name
        assert np.mean(errors[name]) < 1.3 * spread, name


def _with_random_plans_of(exact, found):
    """Take the random plans of another seed, which a sample does not touch."""
    exact["gap_random"] = exact["loss_global"] - found["loss_random"]
    gain = exact["loss_train"] - found["loss_random"]
    exact["gap_reduction"] = gain / exact["gap_random"]
    exact["oracle_share"] = gain / (exact["loss_oracle"] - found["loss_random"])
    guard, random = exact["guard"], found["guard"]["loss_random"]
    exact["hardness"] = (guard["loss_train"] - random) / (guard["loss_global"] - random)


@pytest.mark.parametrize("temperature", [0.05, 1e-4])  # the second takes the other way
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("hold", [True, False])
def test_sampled_rows_have_the_statistics_of_all_rows(temperature, paired, hold, monkeypatch):
    embeddings = pairs(1500, paired=paired)
    runtime = Runtime(device="cpu")
    own_pairs = unguarded_pairs(embeddings, "cosine", temperature, runtime)
    if not hold:
        monkeypatch.setattr(own_pairs.x, "held", None)
        monkeypatch.setattr(own_pairs.y, "held", None)
    assert (scale_of(temperature, own_pairs.bound) is None) == (temperature < 1e-3)
    done = []
    arguments = own_pairs, 32, runtime, done.append
    whole = all_rows.global_statistics(*arguments)
    assert sum(done) == 1500
    done.clear()
    rows = np.random.default_rng(1).permutation(1500)
    for own in (rows, rows[:1101], rows[:1]):
        some = all_rows.global_statistics(*arguments, rows=own)
        for direction, expected in zip(some, whole, strict=True):
            assert direction.hardest.tolist() == expected.hardest[own].tolist()
            for name in ("positive", "log_sum", "oracle"):
                found, wanted = getattr(direction, name), getattr(expected, name)[own]
                np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-7 / temperature)
        assert sum(done) == 1500
        done.clear()


def test_a_sample_of_all_rows_compares_all_rows():
    embeddings, own = pairs(200), shuffled(200, 16)
    options = {"random_trials": 2, "device": "cpu"}
    exact = evaluate(own, embeddings, **options)
    assert exact == evaluate(own, embeddings, sample=200, **options)
    assert exact == evaluate(own, embeddings, sample=0, **options)
    assert exact.sample is None
    assert not exact.standard_errors
    assert not {"sample", "standard_errors"} & exact.to_dict().keys()


def test_how_many_rows_are_sampled():
    for sample, rows, count in (
        (None, ALL_UP_TO, None),
        (None, ALL_UP_TO + 1, USUAL_SAMPLE),
        (0, 10**9, None),
        (101, 1000, 100),
        (999, 1000, 998),
        (1000, 1000, None),
    ):
        assert EvaluationOptions(sample=sample).sampled(rows) == count
    for wrong in (-1, 1, 63):
        with pytest.raises(InputError, match="sample: got"):
            EvaluationOptions(sample=wrong)


def test_strata():
    order = np.random.default_rng(0).permutation(103)
    sample = Sample.draw(order, 20, np.random.default_rng(1))
    assert sample.strata.sum() == 103
    assert np.ptp(sample.strata) == 1
    strata = np.split(order, np.cumsum(sample.strata)[:-1])
    for pair, stratum in zip(sample.rows.reshape(-1, 2), strata, strict=True):
        assert len({*pair} & {*stratum}) == 2
    # A number that is the same in a stratum has no error; two rows of two are all rows.
    level = np.empty(103)
    for at, stratum in enumerate(strata):
        level[stratum] = at
    assert sample.mean(level[sample.rows]) == pytest.approx(level.mean())
    assert sample.standard_error(level[sample.rows]) == 0
    full = Sample.draw(order, 102, np.random.default_rng(1))
    assert full.standard_error(np.random.default_rng(2).random(102)) < 0.01


def test_every_sample_of_a_small_stratum_is_as_likely():
    """Means of all pairs of 4 rows, and the variance that the formula promises on average."""
    values = np.array([1.0, 5.0, -2.0, 7.0])
    means, variances = [], []
    draw = np.random.default_rng(0)
    for _ in range(6000):
        sample = Sample.draw(np.arange(4), 2, draw)
        means.append(sample.mean(values[sample.rows]))
        variances.append(sample.standard_error(values[sample.rows]) ** 2)
    counts = np.unique(np.round(means, 9), return_counts=True)[1]
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)
    # Cochran, theorem 2.2: S^2/n (1 - n/N)
    assert np.mean(variances) == pytest.approx(values.var(ddof=1) / 4, rel=0.05)


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_plans_that_drop_or_repeat_rows(tail):
    embeddings = pairs(1000)
    rows = np.random.default_rng(0).permutation(1000)[:700]
    if tail == "pad":
        rows = np.concatenate((rows, rows[:300], rows[:300]))
    own = Plan.from_batches(rows, np.arange(0, len(rows) + 1, 50), Batching(50), num_rows=1000)
    options = {"random_trials": 2, "device": "cpu", "guard": False}
    exact = evaluate(own, embeddings, sample=0, **options)
    found = evaluate(own, embeddings, sample=400, **options)
    for m, recall in found.hard_negative_recall.items():
        error = found.standard_errors[f"hard_negative_recall.{m}"]
        assert 0 < error < 0.02
        assert abs(recall - exact.hard_negative_recall[m]) < 4 * error


def test_a_plan_without_any_sampled_row_tells_nothing_of_recall():
    members = membership(np.array([0, 1]), np.array([0, 2]), 9)
    sample = Sample(9, np.array([5, 6]), np.array([9]))
    assert hard_negative_recall(members, sample, [np.array([[0], [1]])]) == (0.0, 1.0)


def test_plans_share_a_sample_and_threads_change_nothing():
    embeddings = pairs(900)
    plans = [shuffled(900, size, seed) for size, seed in ((30, 0), (30, 1), (60, 2))]
    options, runtime = EvaluationOptions(random_trials=2, sample=100), Runtime(device="cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = [
            evaluate_plans([own], embeddings, RowFacts(), options, runtime)[0] for own in plans
        ]
    finally:
        torch.set_num_threads(threads)
    together = evaluate_plans(plans, embeddings, RowFacts(), options, runtime)
    assert together == alone
    assert len({own.loss_global for own in together}) == 1
    runtime = Runtime(device="cpu", seed=1)
    (other,) = evaluate_plans(plans[:1], embeddings, RowFacts(), options, runtime)
    assert other.loss_global != alone[0].loss_global


def test_texts_have_standard_errors():
    embeddings = pairs(300)
    found = evaluate(shuffled(300, 10), embeddings, sample=100, random_trials=2, device="cpu")
    shown = texts(found.to_dict())
    for name in ("loss_global", "gap", "gap_reduction", "loss_oracle", "oracle_share"):
        assert " ± " in shown[name], name
    assert shown["hard_negative_recall.1"].count("% ± ") == 2
    assert " ± " not in shown["loss_train"]
