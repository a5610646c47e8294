"""Groups, histogram and coverage: what may be wrong with negatives, and with samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.plans import Plan
from batchplan.quality import evaluate
from batchplan.quality.coverage import coverage
from batchplan.quality.facts import check_codes
from batchplan.quality.losses import distribution


@st.composite
def samples(draw):
    """Batches with repeated and missing rows, and labels with nulls: (n, batches, labels)."""
    n = draw(st.integers(2, 12))
    batch = st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True)
    batches = draw(st.lists(batch, min_size=1, max_size=5))
    labels = draw(st.lists(st.integers(-1, 4), min_size=n, max_size=n))
    return n, batches, labels


@given(samples(), st.integers(1, 10**12))
def test_only_equality_of_codes_matters(sample, step):
    n, _, labels = sample
    spread = [code if code < 0 else 7 + code * step for code in labels]
    one, other = (check_codes(codes, n) for codes in (labels, spread))
    assert one.tolist() == other.tolist()
    assert all(
        (one[i] == one[j] != -1) == (labels[i] == labels[j] != -1)
        for i in range(n)
        for j in range(n)
    )


def test_evaluate_takes_codes(helpers):
    embeddings = helpers.clustered(30)
    plan = helpers.make_plan(embeddings, 6)
    groups = np.arange(30, dtype=np.uint8) // 5
    found = evaluate(plan, embeddings, groups=groups, guard=False)
    assert found.guard.false_negatives_random == pytest.approx(4 / 29)
    plain = evaluate(plan, embeddings, guard=False)
    assert plain.guard is None
    others = {name: plain.to_dict()[name] for name in ("guard", "hardness", "false_negatives")}
    assert found.to_dict() | others == plain.to_dict()
    alone = evaluate(plan, embeddings, groups=[-1] * 30, guard=False)
    assert alone.guard.broken == 0


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
def test_codes_that_are_none(helpers, codes, part):
    embeddings = helpers.clustered(30)
    plan = helpers.make_plan(embeddings, 6)
    with pytest.raises(InputError, match=f"^groups: got .*{part}"):
        evaluate(plan, embeddings, groups=codes)


@given(samples())
def test_coverage_counts_rows(sample):
    n, batches, _ = sample
    rows = [row for batch in batches for row in batch]
    found = coverage(np.array(rows), n)
    assert found.rows_seen + found.rows_never_seen == n
    assert found.rows_seen == len(set(rows)) == len(rows) - found.repeats
    assert found.share_seen == found.rows_seen / n
    assert found.most_repeated == max(rows.count(row) for row in rows)


def test_histogram_of_plans_of_all_pairs_is_that_of_random_ones(helpers):
    embeddings = helpers.clustered(24)
    found = evaluate(helpers.make_plan(embeddings, 24), embeddings).similarity_histogram
    assert found["plan"] == found["random"]
    assert sum(found["plan"]) == pytest.approx(1)


def test_percentiles_of_some_batches_and_of_some_of_their_rows(helpers, monkeypatch):
    embeddings = helpers.clustered(40)
    plan, S = helpers.make_plan(embeddings, 8), helpers.dense(embeddings, "cosine")
    monkeypatch.setattr(distribution, "_PAIRS", 2 * 8**2)
    monkeypatch.setattr(distribution, "_SIDE", 4)
    some = [plan.rows[start : start + 8 : 2] for start in (0, 16)]
    expected = [S[i, j] for batch in some for i in batch for j in batch if i != j]
    found = evaluate(plan, embeddings).similarity_percentiles
    assert list(found.values()) == pytest.approx(
        np.percentile(expected, distribution.PERCENTS), abs=1e-6
    )


def test_no_negatives_no_histogram(helpers):
    embeddings = helpers.clustered(5)
    metadata = helpers.make_plan(embeddings, 2).metadata
    plan = Plan(np.arange(5), np.arange(6), metadata)
    found = evaluate(plan, embeddings)
    assert (found.similarity_histogram, found.similarity_percentiles) == ({}, {})
