"""Extra negatives of batches, drawn from the windows of their rows."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import batchplan
from batchplan import InputError
from batchplan.guard.rules import rules_of
from batchplan.planners import plan
from batchplan.planners.partition import extra

N, SIZE = 96, 8


def made(embeddings, seed=0, **options):
    options = {"batch_size": SIZE, "device": "cpu", "extra_negatives": 5, **options}
    return plan(embeddings, "partition", seed=seed, **options)


def similarities(embeddings):
    x, y = (side.rows(0, N).astype(np.float64) for side in (embeddings.x, embeddings.y))
    x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    return x @ y.T


def windows(embeddings, skipped, taken):
    """Of each row, the rows of these ranks."""
    S = similarities(embeddings)
    np.fill_diagonal(S, -np.inf)
    return np.argsort(-S, axis=1, kind="stable")[:, skipped : skipped + taken]


@pytest.mark.parametrize("ways", [
    {}, {"mega_batches": 3, "rank_window": "3:9"}, {"mutual": True}, {"tail": "drop"},
    {"batch_size": 10, "tail": "pad"}, {"world_size": 2}, {"batch_order": "planned"},
], ids=str)  # fmt: skip
def test_they_come_from_the_windows_of_their_batch(make, ways):
    embeddings = make(N)
    found = made(embeddings, guard=False, **ways)
    near = windows(embeddings, *((3, 9) if "rank_window" in ways else (0, 16)))
    assert found.extra_negatives.shape == (found.num_batches, 5)
    for batch, others in zip(found.batches(), found.extra_negatives, strict=True):
        assert len(set(others.tolist())) == 5
        assert set(others.tolist()) <= set(near[batch].ravel()) - set(batch.tolist())
    usual = made(embeddings, guard=False, **{**ways, "extra_negatives": None})
    assert np.array_equal(usual.rows, found.rows)
    assert usual.extra_negatives is None


def test_likelier_where_more_windows_hold_them(make):
    """The first of each batch is drawn in proportion to the windows."""
    embeddings = make(N)
    first = made(embeddings, guard=False)
    near = windows(embeddings, 0, 16)
    counts = np.bincount(near[first[0]].ravel(), minlength=N).astype(float)
    counts[first[0]] = 0
    rules = rules_of(None, embeddings, torch.empty((0, 0)), False).compiled()
    batch, none = (first[0].copy(), np.array([0, SIZE])), np.empty((0, 0), np.float32)
    drawn, one, trials = np.zeros(N), np.empty((1, 1), np.int64), 2000
    for key in np.random.default_rng(0).integers(2**64, size=trials, dtype=np.uint64):
        extra._draw_all(*batch, near, key, rules, none, none, one)
        drawn[one[0, 0]] += 1
    expected = trials * counts / counts.sum()
    seen = expected > 0
    assert drawn[~seen].sum() == 0
    assert ((drawn - expected)[seen] ** 2 / expected[seen]).sum() < 2 * seen.sum()  # chi square


@pytest.mark.parametrize("paired", [True, False])
def test_the_guard_applies(make, tmp_path, paired):
    embeddings = make(N)
    if not paired:
        x = embeddings.x.rows(0, N)
        embeddings = batchplan.load_embeddings(x, single=True)
    groups = np.arange(N) // 4
    table = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"group": groups}), table)
    options = {"group_column": "group", "label_table": str(table), "relative_margin": 0.4}
    found = made(embeddings, extra_negatives=40, **options)
    S = similarities(embeddings)
    own = np.diag(S)
    own = np.maximum(own, sorted(own)[(len(own) - 1) // 2])
    ceiling = own - 0.4 * np.abs(own)
    high = np.maximum(S, S.T) >= np.minimum(ceiling[:, None], ceiling) - 1e-9
    taken = 0
    for batch, others in zip(found.batches(), found.extra_negatives, strict=True):
        drawn = others[others >= 0]
        assert (others[len(drawn) :] == -1).all()
        assert not high[np.ix_(batch, drawn)].any()
        assert not set(groups[batch]) & set(groups[drawn])
        taken += len(drawn)
    assert 0 < taken < 40 * found.num_batches
    loose = made(embeddings, extra_negatives=40, guard=False)
    assert any(
        high[np.ix_(batch, others[others >= 0])].any()
        for batch, others in zip(loose.batches(), loose.extra_negatives, strict=True)
    )


def test_the_same_ones_every_time(make, use_threads, tmp_path):
    files = []
    for threads in (1, 3):
        use_threads(threads)
        files.append(tmp_path / f"{threads}.npz")
        made(make(N)).save(files[-1])
    assert files[0].read_bytes() == files[1].read_bytes()
    other = made(make(N), seed=1).extra_negatives
    assert not np.array_equal(made(make(N)).extra_negatives, other)


def test_a_file_keeps_them(make, tmp_path):
    found = made(make(N))
    found.save(tmp_path / "plan.npz")
    with np.load(tmp_path / "plan.npz") as archive:
        assert np.array_equal(archive["extra_negatives"], found.extra_negatives)
    assert np.array_equal(batchplan.Plan.load(tmp_path / "plan.npz").rows, found.rows)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.extra_negatives, found.extra_negatives)
    for name in ("plan.npy", "-"):
        with pytest.raises(InputError, match=r"cannot hold extra negatives; name a \.npz"):
            found.save(tmp_path / name if name != "-" else name)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.npz"]


def test_refusals(make):
    with pytest.raises(InputError, match="extra negatives: got 0"):
        made(make(N), extra_negatives=0)
    with pytest.raises(InputError, match="extra negatives: got 5 with batches of one source"):
        made(make(N), source_column="source")
