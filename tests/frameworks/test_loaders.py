"""Plans in loaders that no framework is around: torch, torchdata and Grain."""

from __future__ import annotations

import time
import warnings
from datetime import timedelta

import grain
import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import ConcatDataset, DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from batchplan import InputError
from batchplan.plans import Batching, Plan
from batchplan.training import EpochPlans, MultiDatasetPlans, PlanBatchSampler

from .numbers import ROWS, Rows, vectors
from .processes import run
from .shown import epoch_of, epochs_of


def train(folder, workers, **options):
    """The rows of each step of a loop of plain torch."""
    distributed.init_process_group("gloo")
    rank, devices = distributed.get_rank(), distributed.get_world_size()
    model = torch.nn.Linear(1, 1)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    plans = EpochPlans(
        folder,
        "random",
        guard=True,
        embed=lambda rows: vectors(model.weight.item(), rows),
        num_rows=ROWS,
        batch_size=4,
        **options,
    )
    sampler = PlanBatchSampler(plans, rank=rank, world_size=devices)
    loader = DataLoader(Rows(), batch_sampler=sampler, num_workers=workers)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for rows in loader:
            optimizer.zero_grad()
            (parallel(rows[:, None] / ROWS) ** 2).mean().backward()
            optimizer.step()
            seen.append(rows.int().tolist())
    return seen


def test_a_data_set_that_is_given_is_checked():
    plan = Plan.cut(range(ROWS), Batching(4), num_rows=ROWS)
    dataset = Dataset.from_dict({"batchplan_row": range(ROWS)})
    texts = Dataset.from_dict({"text": [*map(str, range(ROWS))]})
    with warnings.catch_warnings(action="error"):
        for own in (dataset, texts, Rows()):
            PlanBatchSampler(plan, dataset=own)
    with pytest.warns(UserWarning, match="selected, sorted or shuffled") as warned:
        PlanBatchSampler(plan, dataset=texts.shuffle(seed=0))
    assert warned[0].filename == __file__
    with pytest.raises(InputError, match="its column batchplan_row is not 0 to"):
        PlanBatchSampler(plan, dataset=dataset.select(range(ROWS)[::-1]))
    with pytest.raises(InputError, match=f"data set: got 3 rows, but the plan is for {ROWS}"):
        PlanBatchSampler(plan, dataset=texts.select(range(3)))


@pytest.mark.parametrize(("devices", "workers"), [(2, 2), (4, 0)])
@pytest.mark.parametrize("scope", ["device", "global"])
def test_torch(devices, workers, scope, tmp_path):
    seen = run(train, devices, tmp_path, workers, scope=scope)
    assert seen == epochs_of(tmp_path, devices, 2)


def plan_slowly(folder):
    """Planning takes longer than a collective may wait."""
    distributed.init_process_group("gloo", timeout=timedelta(seconds=2))
    rank, devices = distributed.get_rank(), distributed.get_world_size()

    def embed(rows):
        time.sleep(4 * (rank == 0))
        return vectors(0, rows)

    plans = EpochPlans(folder, "random", guard=True, embed=embed, num_rows=ROWS, batch_size=4)
    sampler = PlanBatchSampler(plans, rank=rank, world_size=devices)
    sampler.set_epoch(0)
    rows = torch.tensor(sum(map(len, sampler)))
    distributed.all_reduce(rows)
    return rows.item()


def test_planning_may_outlast_a_collective(tmp_path):
    assert run(plan_slowly, 2, tmp_path) == [ROWS, ROWS]


def plan(folder):
    order = np.random.default_rng(0).permutation(ROWS)
    made = Plan.cut(order, Batching(4, world_size=2), num_rows=ROWS)
    made.save(folder / "plan.npz")
    return made


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 3, 6])
def test_torchdata(workers, taken, tmp_path):
    made = plan(tmp_path)
    for rank, expected in enumerate(epoch_of(tmp_path / "plan.npz", 2)):
        first, resumed = (
            StatefulDataLoader(
                Rows(),
                batch_sampler=PlanBatchSampler(made, rank=rank, world_size=2),
                num_workers=workers,
            )
            for _ in range(2)
        )
        batches = iter(first)
        seen = [next(batches).int().tolist() for _ in range(taken)]
        resumed.load_state_dict(first.state_dict())
        seen += [rows.int().tolist() for rows in resumed]
        seen += [rows.int().tolist() for rows in resumed]
        assert seen == 2 * expected


def stateful(folder, workers, stop=None, begin=0, state=None):
    """The rows of each step of a loop that stops after a step, or in the middle between two epochs;
    and the loader's state then."""
    plans = EpochPlans(
        folder, "random", embed=lambda rows: vectors(0, rows), num_rows=ROWS, batch_size=4
    )
    sampler = PlanBatchSampler(plans)
    loader = StatefulDataLoader(Rows(), batch_sampler=sampler, num_workers=workers)
    if state is not None:
        loader.load_state_dict(state)
    seen = []
    for epoch in range(begin, 3):
        sampler.set_epoch(epoch)
        for rows in loader:
            seen.append(rows.int().tolist())
            if len(seen) == stop:
                return seen, loader.state_dict()
        if len(seen) + 0.5 == stop:
            break
    return seen, loader.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("stop", "begin"), [(5, 0), (12, 0), (12, 1), (12.5, 1), (17, 1), (36.5, 3)]
)
def test_torchdata_goes_on_in_a_series(workers, stop, begin, tmp_path):
    """Within an epoch, after its last step, and after its end (.5); in a new process."""
    (seen, state) = run(stateful, 1, tmp_path / "plans", workers, stop)[0]
    went_on, _ = run(stateful, 1, tmp_path / "plans", workers, begin=begin, state=state)[0]
    whole, _ = stateful(tmp_path / "whole", 0)
    assert len(whole) == 36
    assert seen + went_on == whole


def test_torchdata_refuses_another_plan(tmp_path):
    made = plan(tmp_path)
    other = Plan.cut(range(ROWS), Batching(4, world_size=2), num_rows=ROWS)
    loaders = [
        StatefulDataLoader(Rows(), batch_sampler=PlanBatchSampler(one, rank=0, world_size=2))
        for one in (made, other)
    ]
    next(iter(loaders[0]))
    loaders[1].load_state_dict(loaders[0].state_dict())
    with pytest.raises(InputError, match="go on with the plan of the checkpoint"):
        next(iter(loaders[1]))


def own_states(made, stateful, *steps):
    """The rows after each rank has loaded its own state, and what those at another place say."""
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()

    def loader():
        sampler = PlanBatchSampler(made, rank=rank, world_size=2)
        kind = StatefulDataLoader if stateful else DataLoader
        loader = kind(Rows(), batch_sampler=sampler)
        return loader, loader if stateful else sampler

    said = []
    for taken in steps:
        (first, saved), (second, resumed) = loader(), loader()
        batches = iter(first)
        for _ in range(taken[rank]):
            next(batches)
        resumed.load_state_dict(saved.state_dict())
        try:
            said.append([rows.int().tolist() for rows in second])
        except InputError as error:
            said.append(str(error))
    distributed.barrier()
    return said


@pytest.mark.parametrize("stateful", [False, True])
def test_ranks_with_states_of_other_steps_are_refused(stateful, tmp_path):
    made = plan(tmp_path)
    each = run(own_states, 2, made, stateful, (3, 3), (2, 3), (1, 1))
    for said, expected in zip(each, epoch_of(tmp_path / "plan.npz", 2), strict=True):
        assert [said[0], said[2]] == [expected[3:], expected[1:]]
    (refusal,) = [said[1] for said in each if isinstance(said[1], str)]
    assert "load states that all ranks saved after the same step" in refusal
    assert "at step 2 of epoch 0" in refusal
    assert "at step 3 of epoch 0" in refusal


def test_data_sets_in_another_order_do_not_resume(tmp_path):
    """Both have as many rows and equal plans, so that the joined plans have one digest."""
    texts = {name: [f"{name}{row}" for row in range(ROWS)] for name in "ab"}
    sets = {name: Dataset.from_dict({"text": own}) for name, own in texts.items()}

    def sampler(names):
        plans = MultiDatasetPlans(
            {
                name: EpochPlans(
                    tmp_path / name, "random", embed=lambda rows: vectors(0, rows), num_rows=ROWS,
                    batch_size=4,
                )
                for name in names
            }
        )  # fmt: skip
        return PlanBatchSampler(plans, dataset=ConcatDataset([sets[name] for name in names]))

    begun = sampler("ab")
    whole = list(begun)
    begun.set_epoch(0)
    next(iter(begun))
    state = begun.state_dict()
    begun.series.end()
    with pytest.raises(InputError, match="data set: is another one than that of the state, or in"):
        sampler("ba").load_state_dict(state)
    resumed = sampler("ab")
    resumed.load_state_dict(state)
    assert list(resumed) == whole[1:]


@pytest.mark.parametrize("taken", [0, 3])
def test_grain(taken, tmp_path):
    made = plan(tmp_path)
    dataset = Rows()
    for rank, expected in enumerate(epoch_of(tmp_path / "plan.npz", 2)):
        sampler = PlanBatchSampler(made, rank=rank, world_size=2)
        source = grain.MapDataset.source(sampler)
        steps = source.map(
            lambda rows: torch.stack([dataset[row] for row in rows])
        ).to_iter_dataset()
        batches = iter(steps)
        seen = [next(batches).int().tolist() for _ in range(taken)]
        resumed = iter(steps)
        resumed.set_state(batches.get_state())
        seen += [rows.int().tolist() for rows in resumed]
        assert seen == expected
