"""Plans that stay in their files: mapped, sent by their path, and safe from those that replace
them."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

from batchplan import InputError
from batchplan.plans import Batching, Plan
from batchplan.plans.stored import StoredPlan
from batchplan.training import PlanBatchSampler

N, SIZE = 1000, 64


@pytest.fixture
def plan():
    order = np.random.default_rng(2).permutation(N)
    return Plan.cut(order, Batching(SIZE), num_rows=N)


def listed(plan):
    return [
        plan.entries(*bounds).tolist()
        for bounds in np.lib.stride_tricks.sliding_window_view(plan.batch_offsets, 2)
    ]


@pytest.mark.parametrize("name", ["plan.npy", "plan.npz", "plan.parquet", "plan.txt"])
def test_the_plan_of_its_file(plan, name, tmp_path):
    plan.save(tmp_path / name)
    stored = StoredPlan(tmp_path / name)
    assert listed(stored) == listed(plan) == [batch.tolist() for batch in stored.batches()]
    assert (stored.digest, stored.metadata, len(stored)) == (plan.digest, plan.metadata, len(plan))
    assert stored.rows.dtype == np.int64
    assert np.array_equal(stored.rows, plan.rows)
    with pytest.raises(ValueError, match="read-only"):
        stored.rows[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        stored.entries(0, 2)[0] = 1
    assert stored.with_metrics(a=1).metadata.metrics["a"] == 1


@pytest.mark.parametrize("dtype", ["<i4", "<i8", ">i4", ">i8", "<u4", "<i2", "<u8"])
def test_every_dtype(dtype, tmp_path):
    np.save(tmp_path / "plan.npy", np.arange(7, dtype=dtype))
    stored = StoredPlan(tmp_path / "plan.npy", batch_size=3)
    assert listed(stored) == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([0, 1, 1, 2, 3, 5], "rows repeated within a batch, first row 1"),
        ([0, 1, 2, -1, 3, 4], "row numbers outside"),
    ],
)
def test_bad_rows_are_refused(rows, says, tmp_path):
    np.save(tmp_path / "plan.npy", np.array(rows, np.int32))
    with pytest.raises(InputError, match=says):
        StoredPlan(tmp_path / "plan.npy", batch_size=3)


def test_a_file_cut_short_is_refused(plan, tmp_path):
    plan.save(tmp_path / "plan.npy")
    whole = (tmp_path / "plan.npy").read_bytes()
    (tmp_path / "plan.npy").write_bytes(whole[:-1])
    with pytest.raises(InputError, match="the file is truncated"):
        StoredPlan(tmp_path / "plan.npy")


def test_sent_by_its_path(plan, tmp_path, monkeypatch):
    """Also one that was named from another working directory."""
    plan.save(tmp_path / "plan.npy")
    monkeypatch.chdir(tmp_path)
    sampler = PlanBatchSampler("plan.npy")
    monkeypatch.chdir("/")
    sent = pickle.dumps(sampler)
    assert len(sent) < 2000
    assert list(pickle.loads(sent)) == list(sampler)
    assert list(copy.deepcopy(sampler)) == list(sampler)


def test_another_plan_takes_the_place_of_an_open_one(plan, tmp_path):
    path = tmp_path / "plan.npy"
    plan.save(path)
    sampler = PlanBatchSampler(path)
    before, sent = list(sampler), pickle.dumps(sampler)
    Plan.cut(range(N), Batching(SIZE), num_rows=N).save(path, force=True)
    assert list(sampler) == list(copy.deepcopy(sampler)) == before
    with pytest.raises(InputError, match=r"plan.npy: holds another plan \(digest sha256:"):
        pickle.loads(sent)
    plan.save(path, force=True)
    assert list(pickle.loads(sent)) == before
    path.unlink()
    with pytest.raises(InputError, match=r"plan.npy: does not exist"):
        pickle.loads(sent)
    assert list(sampler) == before


MANY = """
import sys
from batchplan.training import PlanBatchSampler

def held():
    status = open("/proc/self/status").read()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024

PlanBatchSampler(sys.argv[1], batch_size=64)
before = held()
sampler = PlanBatchSampler(sys.argv[2])
assert sum(len(batch) for batch in sampler) == 4_000_000
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_many_rows(tmp_path):
    """The map takes none: 4 million rows are 32 MB as int64, and 16 MB as they are stored."""
    np.save(tmp_path / "few.npy", np.arange(3_000_000, dtype=np.int32))
    plan = Plan.cut(range(4_000_000), Batching(64), num_rows=4_000_000)
    plan.save(tmp_path / "many.npy")
    done = subprocess.run(
        [sys.executable, "-c", MANY, tmp_path / "few.npy", tmp_path / "many.npy"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 8 << 20
