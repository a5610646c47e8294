"""Plans in a real PyTorch DataLoader."""

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
