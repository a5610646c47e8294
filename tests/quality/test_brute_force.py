"""Every metric against its definition."""

import json

import numpy as np
import pytest

from batchplan.data import Embeddings
from batchplan.quality import evaluate, rows
from batchplan.quality.losses import all_rows, in_batches, streams, tiles
from batchplan.quality.losses.largest import KeyLargest

OPTIONS = {
    "temperature": 0.05, "similarity": "cosine", "random_trials": 3,
    "guard": False,
}  # fmt: skip


def check(helpers, plan, embeddings, tolerance=2e-5, seed=0, **changes):
    options = OPTIONS | changes
    found = evaluate(plan, embeddings, seed=seed, device="cpu", **options).to_dict()
    expected = helpers.brute_force(plan, embeddings, seed=seed, **options)
    assert helpers.differences(found, expected, tolerance) == []
    json.dumps(found, allow_nan=False)
    return found


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
@pytest.mark.parametrize("n", [48, 45])
def test_tails(helpers, n, tail):
    embeddings = helpers.clustered(n)
    check(helpers, helpers.make_plan(embeddings, 6, tail), embeddings)


def test_last_batch_of_one_row(helpers):
    embeddings = helpers.clustered(25)
    check(helpers, helpers.make_plan(embeddings, 8), embeddings)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_similarities_and_single_matrix(helpers, similarity, paired, dtype):
    embeddings = helpers.clustered(40, paired=paired, dtype=dtype)
    temperature = 0.05 if similarity == "cosine" else 2.0
    plan = helpers.make_plan(embeddings, 8)
    check(helpers, plan, embeddings, similarity=similarity, temperature=temperature)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("mined", "ragged"), [(1, False), (3, False), (3, True)])
def test_mined_negatives(helpers, mined, ragged, similarity, paired):
    """All figures are those of anchors that meet the documents of all rows."""
    embeddings = helpers.clustered(40, mined=mined, ragged=ragged, paired=paired)
    assert (embeddings.missing is not None) == ragged
    temperature = 0.05 if similarity == "cosine" else 2.0
    plan = helpers.make_plan(embeddings, 8)
    check(helpers, plan, embeddings, similarity=similarity, temperature=temperature)


@pytest.mark.parametrize("temperature", [0.01, 0.002, 10.0])
def test_temperatures(helpers, temperature):
    embeddings = helpers.clustered(40)
    plan = helpers.make_plan(embeddings, 8)
    # float32 similarities are off by some 1e-7, which a small temperature magnifies
    check(
        helpers, plan, embeddings, temperature=temperature, tolerance=max(2e-5, 1e-6 / temperature)
    )


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_negative_similarities(helpers, similarity):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 8)).astype(np.float32) + 3
    embeddings = Embeddings.from_arrays(x, -x + rng.standard_normal((30, 8)).astype(np.float32))
    got = check(helpers, helpers.make_plan(embeddings, 5), embeddings, similarity=similarity)
    assert got["similarity_percentiles"]["99"] < 0


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_ties_take_the_lower_index(helpers, similarity):
    embeddings = helpers.clustered(40, copies=20, seed=4)  # every row twice
    check(
        helpers,
        helpers.make_plan(embeddings, 8),
        embeddings,
        similarity=similarity,
        temperature=0.5,
    )


def test_whole_numbers_tie_everywhere(helpers):
    x, y = np.random.default_rng(1).integers(-1, 2, (2, 50, 4)).astype(np.float32)
    embeddings = Embeddings.from_arrays(x, y)
    plan = helpers.make_plan(embeddings, 7)
    check(helpers, plan, embeddings, similarity="dot", temperature=1.0)


def test_more_batch_than_recalled(helpers):
    embeddings = helpers.clustered(60)
    check(helpers, helpers.make_plan(embeddings, 20), embeddings)


def test_fewer_rows_than_recalled(helpers):
    embeddings = helpers.clustered(6)
    check(helpers, helpers.make_plan(embeddings, 2), embeddings)


def test_seed_changes_the_random_plans_only(helpers):
    embeddings = helpers.clustered(40)
    plan = helpers.make_plan(embeddings, 8)
    first, second = (check(helpers, plan, embeddings, seed=seed) for seed in (0, 1))
    changed = {name for name in first if first[name] != second[name]}
    assert changed >= {"loss_random", "loss_random_std"}
    assert not changed & {"loss_train", "loss_global", "loss_oracle", "hard_negative_recall"}


def test_tiles_and_streaming_change_nothing(helpers, monkeypatch):
    """Tiny tiles, many blocks, rows read again at every use: each path, the same numbers."""
    embeddings = helpers.clustered(101)
    plan = helpers.make_plan(embeddings, 50)
    monkeypatch.setattr(tiles, "BLOCK_ROWS", 64)
    monkeypatch.setattr(tiles, "BLOCK_COLUMNS", 64)
    monkeypatch.setattr(in_batches, "MOST", 7 * 50)
    monkeypatch.setattr(rows, "_READ_AT_ONCE", 9)
    held = check(helpers, plan, embeddings)
    whole = rows.MeasuredRows.__init__

    def never_hold(self, matrix, normalize, device, hold):
        whole(self, matrix, normalize, device, False)

    monkeypatch.setattr(rows.MeasuredRows, "__init__", never_hold)
    assert evaluate(plan, embeddings, device="cpu", **OPTIONS).to_dict() == held


def test_kernel_of_other_devices(helpers, monkeypatch):
    """What a GPU runs works on any device."""
    embeddings = helpers.clustered(70, copies=20)
    monkeypatch.setattr(all_rows, "scale_of", lambda temperature, bound: None)
    monkeypatch.setattr(streams, "largest", KeyLargest)
    monkeypatch.setattr(streams, "_COLUMNS", {"cpu": 64})
    check(helpers, helpers.make_plan(embeddings, 16), embeddings)
