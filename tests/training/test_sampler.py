"""Plans in a real PyTorch DataLoader."""

import json
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler, Subset, TensorDataset

from batchplan import InputError
from batchplan.plans import Batching, Plan
from batchplan.training import PlanBatchSampler


class Rows(Dataset):
    """Row numbers as the data, so that a batch shows which rows it took."""

    def __init__(self, num_rows):
        self.num_rows = num_rows

    def __len__(self):
        return self.num_rows

    def __getitem__(self, row):
        assert type(row) is int
        return row


def make(num_rows=50, batch_size=8):
    order = np.random.default_rng(2).permutation(num_rows)
    return Plan.cut(order, Batching(batch_size), num_rows=num_rows)


def test_batches_are_fresh_lists_of_ints():
    plan = make()
    sampler = PlanBatchSampler(plan)
    assert len(sampler) == 7
    assert sampler.batch_size == 8
    first, again = list(sampler), list(sampler)
    assert first == again == [batch.tolist() for batch in plan.batches()]
    assert all(type(row) is int for batch in first for row in batch)
    first[0].clear()
    assert list(sampler) == again


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_dataloader_over_two_epochs(tmp_path, workers):
    plan = make()
    plan.save(tmp_path / "plan.npy")
    loader = DataLoader(Rows(50), batch_sampler=PlanBatchSampler(tmp_path / "plan.npy"), **workers)
    assert len(loader) == 7
    for _ in range(2):
        assert [b.tolist() for b in loader] == [b.tolist() for b in plan.batches()]


def test_spawned_worker_of_a_saved_plan(tmp_path):
    plan = make()
    plan.save(tmp_path / "plan.npz")
    sampler = PlanBatchSampler(str(tmp_path / "plan.npz"))
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)
    dataset = TensorDataset(torch.arange(50))
    loader = DataLoader(
        dataset, batch_sampler=sampler, num_workers=1, multiprocessing_context="spawn"
    )
    assert [b.tolist() for (b,) in loader] == [b.tolist() for b in plan.batches()]


def test_the_npy_file_needs_no_batchplan(tmp_path):
    plan = make(num_rows=1000, batch_size=64)
    plan.save(tmp_path / "plan.npy")
    dataset = TensorDataset(torch.arange(1000))
    ordered = Subset(dataset, np.load(tmp_path / "plan.npy").tolist())
    loader = DataLoader(ordered, sampler=SequentialSampler(ordered), batch_size=64)
    got = [batch.tolist() for (batch,) in loader]
    assert got == [batch.tolist() for batch in plan.batches()]


def test_a_file_without_metadata(tmp_path):
    np.save(tmp_path / "plan.npy", np.arange(6))
    assert list(PlanBatchSampler(tmp_path / "plan.npy", batch_size=4)) == [[0, 1, 2, 3], [4, 5]]
    with pytest.raises(InputError, match="batch_size"):
        PlanBatchSampler(tmp_path / "plan.npy")


def test_another_batch_size_is_refused_for_a_plan_in_memory_too(tmp_path):
    make().save(tmp_path / "plan.npy")
    for source in (make(), tmp_path / "plan.npy"):
        assert PlanBatchSampler(source, batch_size=8).batch_size == 8
        with pytest.raises(InputError, match="16"):
            PlanBatchSampler(source, batch_size=16)


def test_steps_by_number():
    sampler = PlanBatchSampler(make())
    assert [sampler[step] for step in range(7)] == list(sampler)
    assert sampler[-1] == sampler[6]
    assert sampler.position == 0
    with pytest.raises(IndexError):
        sampler[7]


@pytest.mark.parametrize("taken", [0, 3, 6, 7])
def test_goes_on_where_it_was(taken):
    plan = make()
    sampler = PlanBatchSampler(plan)
    batches = iter(sampler)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(sampler.state_dict()))
    resumed = PlanBatchSampler(plan)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert list(resumed) == list(sampler)[taken:]
    assert list(resumed) == list(sampler)  # the next epoch is whole


def test_a_complete_pass_ends_at_the_first_batch():
    sampler = PlanBatchSampler(make())
    list(sampler)
    assert sampler.state_dict()["position"] == 0


def test_the_state_of_another_plan_is_refused():
    sampler = PlanBatchSampler(make())
    next(iter(sampler))
    other = PlanBatchSampler(Plan.cut(range(50), Batching(8), num_rows=50))
    with pytest.raises(InputError, match="is of 1 batches of the plan with digest sha256:"):
        other.load_state_dict(sampler.state_dict())
    with pytest.raises(InputError, match="state: has no parts, plan, position; pass what"):
        other.load_state_dict({"epoch": 0})


@pytest.mark.parametrize(
    ("batching", "says"),
    [
        ({"world_size": 4}, "with world_size 2, but this sampler has 4"),
        ({"world_size": 2, "scope": "global"}, "with scope 'device', but this sampler has 'g"),
    ],
)
def test_a_state_of_other_steps_is_refused(batching, says):
    """These plans have the same rows in the same batches, and so the same digest."""
    rows = range(48)
    plan = Plan.cut(rows, Batching(4, world_size=2), num_rows=48)
    other = Plan.cut(rows, Batching(4, **batching), num_rows=48)
    assert plan.digest == other.digest
    sampler = PlanBatchSampler(plan, rank=0, world_size=2)
    resumed = PlanBatchSampler(other, rank=0, world_size=other.metadata.world_size)
    batches = iter(sampler)
    next(batches)
    with pytest.raises(InputError, match=f"state: is of 1 batches {says}"):
        resumed.load_state_dict(sampler.state_dict())
    list(batches)
    resumed.load_state_dict(sampler.state_dict())  # of no batches
    assert resumed.epoch == 1
    assert len(list(resumed)) == len(resumed)


def test_an_epoch_of_a_single_plan_is_like_any_other():
    sampler = PlanBatchSampler(make())
    before = list(sampler)
    sampler.set_epoch(3)
    assert sampler.state_dict()["epoch"] == 3
    assert list(sampler) == before
    assert sampler.state_dict()["epoch"] == 4  # not begun


def test_called_as_a_factory():
    sampler = PlanBatchSampler(make())
    options = {"drop_last": True, "valid_label_columns": ["label"], "generator": None, "seed": 0}
    assert sampler(Rows(50), batch_size=8, **options) is sampler
    with pytest.raises(InputError, match="data set: got 49 rows, but the plan is for 50"):
        sampler(Rows(49), batch_size=8, **options)
    with pytest.raises(InputError, match="got 32 rows per device, but the plan gives each 8"):
        sampler(Rows(50), batch_size=32, **options)
