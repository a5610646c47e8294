"""The guard against false negatives, against its definition."""

import json
from itertools import cycle, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.plans import Batching, Plan
from batchplan.quality import evaluate, rows
from batchplan.quality.losses import in_batches, streams, tiles

GUARDS = (
    {"relative_margin": 0.05},
    {"relative_margin": 0.0},
    {"relative_margin": 1.0},
    {"absolute_margin": 0.0},
    {"absolute_margin": 0.1},
    {"max_score": 0.7},
    {"max_score": -0.2},
)


def check(helpers, plan, embeddings, *, tolerance=2e-5, **options):
    options = {"random_trials": 3} | options
    found = evaluate(plan, embeddings, device="cpu", **options)
    got = found.to_dict()["guard"]
    expected = helpers.guard_report(plan, embeddings, **options)
    reduction, wanted = found.guard.hardness, expected.pop("hardness")
    assert found.guard.false_negatives == expected["false_negatives"]
    gap_random = expected["loss_global"] - expected["loss_random"]
    if abs(gap_random) > 1e-4:  # a quotient of losses may have a small divisor
        assert reduction == pytest.approx(wanted, abs=1e-3)
    else:  # so small that rounding may decide whether it is 0
        gain = expected["loss_train"] - expected["loss_random"]
        assert reduction == 0 or reduction * gap_random == pytest.approx(gain, abs=tolerance)
    assert helpers.differences(got, expected, tolerance) == []
    json.dumps(got, allow_nan=False)
    return found


def guards_and_similarities_with(name):
    """All of both, with or without the third, so that any two meet."""
    cases = zip(product(GUARDS, ("cosine", "dot")), cycle((True, False, False, True)), strict=False)
    cases = [(*case, one) for case, one in cases]
    return pytest.mark.parametrize(("guard", "similarity", name), cases)


@guards_and_similarities_with("paired")
def test_guards(helpers, guard, similarity, paired):
    embeddings = helpers.clustered(45, paired=paired, copies=4)
    temperature = 0.05 if similarity == "cosine" else 2.0
    plan = helpers.make_plan(embeddings, 8)
    found = check(
        helpers, plan, embeddings, similarity=similarity, temperature=temperature, **guard
    )
    assert found.guard.false_negatives_random > 0


@guards_and_similarities_with("ragged")
def test_mined_negatives(helpers, guard, similarity, ragged):
    """Those of one row may be positives of another, or of their own."""
    embeddings = helpers.clustered(45, copies=4, mined=2, ragged=ragged)
    temperature = 0.05 if similarity == "cosine" else 2.0
    groups = np.arange(45) // 4 - 1
    check(
        helpers, helpers.make_plan(embeddings, 8), embeddings, similarity=similarity,
        temperature=temperature, groups=groups, **guard,
    )  # fmt: skip


def test_the_positive_of_another_row(helpers):
    embeddings = helpers.clustered(45, mined=1)  # the negative of row 0 is y of row 22
    plan = Plan.cut(np.array([0, 22, *range(1, 22), *range(23, 45)]), Batching(9), num_rows=45)
    found = check(helpers, plan, embeddings, relative_margin=0.0)
    assert found.guard.mined.broken > 0


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_tails(helpers, tail):
    embeddings = helpers.clustered(45, copies=10)
    groups = np.arange(45) // 4 - 1
    plan = helpers.make_plan(embeddings, 8, tail)
    check(helpers, plan, embeddings, relative_margin=0.1, groups=groups)


def test_samples_that_repeat_and_leave_out_rows(helpers):
    embeddings = helpers.clustered(20, copies=3)
    batches = [[0, 17, 3, 4], [0, 17, 5], [6], [3, 4, 18, 1]]
    offsets = np.cumsum([0, *map(len, batches)])
    metadata = helpers.make_plan(embeddings, 4).metadata
    plan = Plan(np.concatenate(batches), offsets, metadata)
    found = check(helpers, plan, embeddings, absolute_margin=0.02, groups=[0, 0, *[-1] * 16, 1, 1])
    assert found.guard.by["duplicate"] == 3  # 0 with 17 twice, 1 with 18


def test_batches_of_one_row_have_no_pairs(helpers):
    embeddings = helpers.clustered(5)
    plan = Plan(np.arange(5), np.arange(6), helpers.make_plan(embeddings, 2).metadata)
    found = check(helpers, plan, embeddings, relative_margin=0.5)
    assert (found.guard.pairs, found.guard.false_negatives, found.guard.loss_train) == (0, None, 0)


def test_groups_alone_are_a_guard(helpers):
    embeddings = helpers.clustered(30, copies=5)
    plan = helpers.make_plan(embeddings, 6)
    found = check(helpers, plan, embeddings, guard=False, groups=[-1, *range(4), *[5] * 25])
    assert found.guard.by["similarity"] == 0
    assert found.guard.by["group"] > 0
    no_group = check(helpers, plan, embeddings, guard=False, groups=[-1] * 30).guard
    assert no_group.broken == no_group.by["duplicate"]
    assert evaluate(plan, embeddings, guard=False).guard is None


def test_positives_below_zero(helpers):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 8)).astype(np.float32)
    y = (rng.standard_normal((30, 8)) - 0.3 * x).astype(np.float32)
    x[7], y[7], x[8] = x[2], y[2], x[9]
    embeddings = Embeddings.from_arrays(x, y)
    assert np.diagonal(helpers.dense(embeddings, "cosine")).min() < -0.3
    for guard in GUARDS:
        check(helpers, helpers.make_plan(embeddings, 7), embeddings, **guard)


@pytest.mark.parametrize(("margin", "broken"), [(0.0, 0), (0.04, 0), (0.06, 1), (0.9, 1)])
def test_a_relative_margin_lowers_the_ceiling_of_a_negative_positive(margin, broken):
    """Both positives are -1 and the other similarities -1.05: a share of -1 would allow them."""
    x, y = np.array([[[1, 0], [0, 1]], [[-1, -1.05], [-1.05, -1]]], np.float32)
    plan = Plan.cut(np.arange(2), Batching(2), num_rows=2)
    options = {"similarity": "dot", "relative_margin": margin}
    assert evaluate(plan, Embeddings.from_arrays(x, y), **options).guard.broken == broken


@pytest.mark.parametrize("guard", GUARDS, ids=str)
@pytest.mark.parametrize("paired", [True, False])
def test_a_reference_judges(helpers, guard, paired, tmp_path, monkeypatch):
    """The limit looks at its rows, of other dimensions; losses are those of the data."""
    monkeypatch.setattr(tiles, "BLOCK_ROWS", 64)
    monkeypatch.setattr(streams, "_QUERIES", 32)
    embeddings = helpers.clustered(145, paired=paired, copies=4)
    judge = helpers.clustered(145, d=5, paired=paired, copies=9, seed=3)
    files = saved(judge, tmp_path)
    plan = helpers.make_plan(embeddings, 8)
    found = evaluate(plan, embeddings, device="cpu", random_trials=3, **files, **guard)
    expected = helpers.guard_report(plan, embeddings, judge=judge, **guard)
    got = found.to_dict()["guard"]
    assert got["reference"] == judge.fingerprint != embeddings.fingerprint
    assert found.guard.hardness == pytest.approx(expected.pop("hardness"), abs=1e-3)
    assert found.false_negatives == expected["false_negatives"]
    assert helpers.differences(got, expected, 2e-5) == []


def saved(embeddings, folder):
    """Options that name the files of a reference."""
    n, files = embeddings.num_rows, {}
    for option, side in zip(("reference", "reference_pair"), "xy", strict=True):
        if side == "x" or embeddings.paired:
            np.save(folder / f"{side}.npy", getattr(embeddings, side).rows(0, n))
            files[option] = [str(folder / f"{side}.npy")]
    return files


def test_a_reference_equal_to_the_data_changes_nothing(helpers, tmp_path):
    embeddings = helpers.clustered(45, copies=4)
    plan = helpers.make_plan(embeddings, 8)
    same = saved(embeddings, tmp_path)
    found = [evaluate(plan, embeddings, relative_margin=0.1, **ways) for ways in ({}, same)]
    own, other = (one.to_dict() for one in found)
    assert other["guard"].pop("reference") == embeddings.fingerprint
    assert own["guard"].pop("reference") is None
    assert own == other
    with pytest.raises(InputError, match="without a limit to judge"):
        evaluate(plan, embeddings, guard=False, **same)


def test_whole_numbers_tie_everywhere(helpers):
    x, y = np.random.default_rng(1).integers(-1, 2, (2, 50, 4)).astype(np.float32)
    embeddings = Embeddings.from_arrays(x, y)
    plan = helpers.make_plan(embeddings, 7)
    for guard in (
        {"relative_margin": 0.0},
        {"relative_margin": 0.5},
        {"absolute_margin": 1.0},
        {"max_score": 2},
    ):
        check(helpers, plan, embeddings, similarity="dot", temperature=1.0, **guard)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_equal_rows_break_the_guard_for_every_reason(similarity):
    """p_i = s_ij for all, however it is rounded."""
    x = np.random.default_rng(0).standard_normal((1, 37)).repeat(40, axis=0).astype(np.float32)
    plan = Plan.cut(np.arange(40), Batching(8), num_rows=40)
    found = evaluate(
        plan, Embeddings.from_arrays(x), similarity=similarity, relative_margin=0.0, groups=[3] * 40
    ).guard
    assert found.by == {**dict.fromkeys(found.by, found.pairs), "known": 0}
    assert (found.false_negatives, found.false_negatives_random, found.rows_affected) == (1, 1, 40)
    assert (found.loss_train, found.loss_global, found.hardness) == (0, 0, 0)


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_one_batch_of_all_rows_breaks_what_all_rows_do(length):
    """Scaled copies tie with their positives but for rounding: float32 alone could not tell."""
    rng = np.random.default_rng(2)
    x, y = length * rng.standard_normal((2, 80, 33))
    x[40:], y[40:] = 2 * x[:40], 2 * y[:40]  # equal under cosine similarity, not equal as stored
    embeddings = Embeddings.from_arrays(x.astype(np.float32), y.astype(np.float32))
    plan = Plan.cut(np.arange(80), Batching(80), num_rows=80)
    found = evaluate(plan, embeddings, relative_margin=0.0).guard
    assert found.by["duplicate"] == 0
    assert found.by["similarity"] >= 40
    assert found.false_negatives == found.false_negatives_random
    assert found.gap == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.05, 0.001])  # the second has no scale
@pytest.mark.parametrize("paired", [True, False])
def test_tiles_and_streaming_change_nothing(helpers, monkeypatch, paired, temperature):
    embeddings = helpers.clustered(301, copies=60, paired=paired)
    plan = helpers.make_plan(embeddings, 50)
    options = {"relative_margin": 0.0, "groups": np.arange(301) // 3, "temperature": temperature}
    options["tolerance"] = 2e-5 * 0.05 / temperature
    whole = check(helpers, plan, embeddings, **options).guard
    monkeypatch.setattr(tiles, "BLOCK_ROWS", 64)
    monkeypatch.setattr(tiles, "BLOCK_COLUMNS", 128)
    monkeypatch.setattr(streams, "_QUERIES", 32)
    monkeypatch.setattr(streams, "_COLUMNS", {"cpu": 48})
    monkeypatch.setattr(in_batches, "MOST", 7 * 50)
    monkeypatch.setattr(rows, "_READ_AT_ONCE", 9)
    held = rows.MeasuredRows.__init__

    def never_hold(self, matrix, normalize, device, hold):
        held(self, matrix, normalize, device, False)

    monkeypatch.setattr(rows.MeasuredRows, "__init__", never_hold)
    parts = check(helpers, plan, embeddings, **options).guard
    assert (whole.broken, whole.by, whole.rows_affected, whole.false_negatives_random) == (
        parts.broken,
        parts.by,
        parts.rows_affected,
        parts.false_negatives_random,
    )


@pytest.mark.parametrize("sample", [0, 128])
@pytest.mark.parametrize("paired", [True, False])
def test_same_bytes_whatever_the_threads(use_threads, helpers, monkeypatch, paired, sample):
    embeddings = helpers.clustered(640, copies=60, paired=paired)
    plan = helpers.make_plan(embeddings, 8)
    monkeypatch.setattr(tiles, "BLOCK_ROWS", 64)
    monkeypatch.setattr(tiles, "BLOCK_COLUMNS", 128)
    reports = []
    for threads in (1, 2, 3):
        use_threads(threads)
        options = {"relative_margin": 0.05, "groups": np.arange(640) // 3, "sample": sample}
        reports.append(evaluate(plan, embeddings, device="cpu", **options).guard)
    assert reports[0] == reports[1] == reports[2]


def test_a_guard_changes_nothing_else(helpers):
    embeddings = helpers.clustered(40, copies=5)
    plan = helpers.make_plan(embeddings, 8)
    guarded_too = evaluate(plan, embeddings, absolute_margin=0.05).to_dict()
    alone = evaluate(plan, embeddings, guard=False).to_dict()
    judged = {name: alone[name] for name in ("guard", "hardness", "false_negatives")}
    assert guarded_too | judged == alone
    assert judged == {
        "guard": None, "hardness": alone["gap_reduction"], "false_negatives": None
    }  # fmt: skip
    assert guarded_too["hardness"] != alone["hardness"]


def test_a_guard_that_nothing_breaks_leaves_the_losses(helpers):
    embeddings = helpers.clustered(40)
    plan = helpers.make_plan(embeddings, 8)
    found = evaluate(plan, embeddings, max_score=50.0)
    assert (found.guard.broken, found.guard.rows_affected) == (0, 0)
    for name in ("loss_train", "loss_global", "loss_random", "gap"):
        assert getattr(found.guard, name) == pytest.approx(getattr(found, name), rel=1e-5), name
    assert found.guard.hardness == pytest.approx(found.gap_reduction, rel=1e-5)


@st.composite
def problems(draw):
    """Few different values, so that there are ties, duplicates and positives below zero."""
    n = draw(st.integers(2, 16))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sides = rng.integers(-2, 3, (1 + draw(st.booleans()), n, 3)).astype(np.float32)
    embeddings = Embeddings.from_arrays(*sides)
    batch = st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True)
    batches = draw(st.lists(batch, min_size=1, max_size=4))
    metadata = Plan.cut(np.arange(n), Batching(2), num_rows=n).metadata
    offsets = np.cumsum([0, *map(len, batches)])
    plan = Plan(np.concatenate(batches), offsets, metadata)
    guard = dict(draw(st.sampled_from(GUARDS)))
    if draw(st.booleans()):
        guard["groups"] = draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    return plan, embeddings, guard


@settings(deadline=None, max_examples=60)
@given(problems())
def test_any_plan_of_any_data(helpers, problem):
    plan, embeddings, guard = problem
    check(helpers, plan, embeddings, similarity="dot", temperature=1.0, random_trials=2, **guard)


@pytest.mark.parametrize(("seed", "negatives"), [(0, 0), (1, 0), (2, 2)])
def test_known_answers(helpers, seed, negatives):
    """Of rows that differ on both sides: (A, 1) and (B, 2), if (A, 2) is a row too."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(np.unique(rng.integers(0, 12, (90, 2)), axis=0))[:45]
    x, y = rng.standard_normal((2, 12, 8)).astype(np.float32)
    mined = [y[rng.integers(0, 12, 45)] for _ in range(negatives)]
    embeddings = Embeddings.from_arrays(x[pairs[:, 0]], y[pairs[:, 1]], negatives=mined or None)
    for guard in ({"relative_margin": 0.1}, {"guard": False, "groups": [-1] * 45}):
        found = check(helpers, helpers.make_plan(embeddings, 8), embeddings, **guard)
        assert found.guard.by["known"] > 0
