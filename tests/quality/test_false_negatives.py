"""Labels, histogram and coverage: what may be wrong with negatives, and with samples."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.plans import Plan
from batchplan.quality import EvaluationOptions, RowFacts, evaluate, evaluate_plans
from batchplan.quality.coverage import coverage
from batchplan.quality.false_negatives import check_codes, false_negatives
from batchplan.quality.losses.distribution import Distribution
from batchplan.quality.references import random_rows
from batchplan.runtime import Runtime


@st.composite
def samples(draw):
    """Batches with repeated and missing rows, and labels with nulls: (n, batches, labels)."""
    n = draw(st.integers(2, 12))
    batch = st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True)
    batches = draw(st.lists(batch, min_size=1, max_size=5))
    labels = draw(st.lists(st.integers(-1, 4), min_size=n, max_size=n))
    return n, batches, labels


def arrays(batches):
    rows = np.array([row for batch in batches for row in batch])
    return rows, np.cumsum([0, *map(len, batches)])


@given(samples())
def test_against_brute_force(sample):
    n, batches, labels = sample
    found = false_negatives(*arrays(batches), check_codes(labels, n, "labels"))

    def rate(batches):
        pairs = [(i, j) for batch in batches for i in batch for j in batch if i != j]
        same = sum(labels[i] == labels[j] != -1 for i, j in pairs)
        return (same / len(pairs) if pairs else None), len(pairs)

    assert (found.rate, found.pairs) == rate(batches)
    assert found.rate_random == pytest.approx(rate([range(n)])[0])
    if found.rate is None or found.rate_random == 0:
        assert found.ratio is None
    else:
        assert found.ratio == found.rate / found.rate_random


@given(samples())
def test_one_label_for_all_and_one_for_each(sample):
    n, batches, _ = sample
    same = false_negatives(*arrays(batches), np.zeros(n, np.int64))
    assert same.rate_random == 1
    assert (same.rate, same.ratio) in {(1, 1), (None, None)}
    for codes in (np.arange(n), np.full(n, -1)):
        none = false_negatives(*arrays(batches), codes)
        assert (none.rate or 0, none.rate_random, none.ratio) == (0, 0, None)


@given(samples(), st.integers(1, 10**12))
def test_only_equality_of_codes_matters(sample, step):
    n, batches, labels = sample
    spread = [code if code < 0 else 7 + code * step for code in labels]
    one, other = (
        false_negatives(*arrays(batches), check_codes(codes, n, "labels"))
        for codes in (labels, spread)
    )
    assert one == other


@pytest.mark.parametrize("sizes", [[7, 7, 6], [7, 7], [7, 7, 7, 7, 3, 1]])
def test_expectation_is_the_mean_over_random_plans(sizes):
    """Also where rows are dropped, and where they come again."""
    n, trials = 20, 1500
    codes = check_codes(np.array([0] * 6 + [1] * 5 + [2] * 3 + [-1] * 6), n, "labels")
    offsets = np.cumsum([0, *sizes])
    generator = np.random.default_rng(0)
    found = [
        false_negatives(random_rows(generator, n, offsets), offsets, codes) for _ in range(trials)
    ]
    rates = np.array([one.rate for one in found])
    assert abs(rates.mean() - found[0].rate_random) < 4 * rates.std() / np.sqrt(trials)


def test_evaluate_takes_codes(helpers):
    embeddings = helpers.clustered(30)
    plan = helpers.make_plan(embeddings, 6)
    plain = evaluate(plan, embeddings, guard=False)
    labels, groups = np.arange(30, dtype=np.uint8) // 5, [-1] * 30
    found = evaluate(plan, embeddings, labels=labels, groups=groups)
    assert list(found.false_negatives) == ["labels", "group"]
    assert found.false_negatives["labels"].rate_random == pytest.approx(4 / 29)
    assert found.false_negatives["group"].rate == 0
    columns = {"labels": "kind", "group": "author"}
    options, runtime = EvaluationOptions(), Runtime()
    facts = RowFacts.read(embeddings, options, runtime, labels, groups, columns)
    (one,) = evaluate_plans([plan], embeddings, facts, options, runtime)
    named = one.to_dict()
    assert [one["column"] for one in named["false_negatives"].values()] == ["kind", "author"]
    assert plain.guard is None
    assert found.to_dict() | {"false_negatives": {}, "guard": None} == plain.to_dict()


@pytest.mark.parametrize(
    ("codes", "part"),
    [
        (np.arange(29), r"int64 \(29,\)"),
        (np.zeros((30, 1), int), r"int64 \(30, 1\)"),
        (np.zeros(30), "float64"),
        (np.zeros(30, bool), "bool"),
        (["a"] * 30, "<U1"),
        ([*range(29), -2], "from -1 on"),
    ],
)
@pytest.mark.parametrize("name", ["labels", "groups"])
def test_codes_that_are_none(helpers, name, codes, part):
    embeddings = helpers.clustered(30)
    plan = helpers.make_plan(embeddings, 6)
    with pytest.raises(InputError, match=f"^{name}: got .*{part}"):
        evaluate(plan, embeddings, **{name: codes})


@given(samples())
def test_coverage_counts_rows(sample):
    n, batches, _ = sample
    rows = [row for batch in batches for row in batch]
    found = coverage(np.array(rows), n)
    assert found.rows_seen + found.rows_never_seen == n
    assert found.rows_seen == len(set(rows)) == len(rows) - found.repeats
    assert found.share_seen == found.rows_seen / n
    assert found.most_repeated == max(rows.count(row) for row in rows)


@pytest.mark.parametrize("bound", [1.0, 3.7, 1e-20, 1e30])
def test_histogram_of_any_range(bound):
    numbers = np.random.default_rng(0).uniform(-bound, bound, (3, 40, 40))
    distribution = Distribution(bound, torch.device("cpu"))
    for part in numbers:
        distribution.add(torch.from_numpy(part[None]), on_diagonal=False)
    edges = distribution.figures(distribution)["similarity_histogram"]["edges"]
    counts = np.histogram(numbers, edges)[0]
    assert distribution.shares() == pytest.approx(counts / numbers.size)
    assert (edges[0], edges[20], edges[40]) == (-bound, 0, bound)


def test_histogram_at_its_edges():
    distribution = Distribution(1.0, torch.device("cpu"))
    assert distribution.shares() == []
    numbers = [*(step / 20 for step in range(-20, 21)), 1.0 + 1e-7, -1.0 - 1e-7]
    distribution.add(torch.tensor([[numbers]], dtype=torch.float64), on_diagonal=False)
    assert distribution.shares() == pytest.approx([count / 43 for count in [2, *[1] * 38, 3]])


def test_histogram_of_plans_of_all_pairs_is_that_of_random_ones(helpers):
    embeddings = helpers.clustered(24)
    found = evaluate(helpers.make_plan(embeddings, 24), embeddings).similarity_histogram
    assert found["plan"] == found["random"]
    assert sum(found["plan"]) == pytest.approx(1)


def test_no_negatives_no_histogram(helpers):
    embeddings = helpers.clustered(5)
    metadata = helpers.make_plan(embeddings, 2).metadata
    plan = Plan(np.arange(5), np.arange(6), metadata)
    found = evaluate(plan, embeddings, labels=np.zeros(5, int))
    assert (found.similarity_histogram, found.similarity_percentiles) == ({}, {})
    assert found.false_negatives["labels"].rate is None
