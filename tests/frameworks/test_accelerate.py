"""Planned batches in a loop of accelerate, seen at the training step."""

from __future__ import annotations

from warnings import catch_warnings

import numpy as np
import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from accelerate.utils import GradientAccumulationPlugin
from torch.utils.data import DataLoader

from batchplan import InputError
from batchplan.plans import Batching, Plan
from batchplan.training import EpochPlans, PlanBatchSampler, with_rows
from batchplan.training.accelerate import PlannedLoader

from .numbers import ROWS, Rows, vectors
from .processes import run
from .shown import epoch_of, epochs_of
from .texts import pairs


def train(folder, *, resume=False, stop=None, workers=0, accumulate=1, even=True, **options):
    """The rows of each step, and how often the optimizer stepped."""
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(even_batches=even),
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=accumulate),
    )
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01))
    inner = accelerator.unwrap_model(model)
    plans = EpochPlans(
        folder / "plans", embed=lambda rows: vectors(inner.weight.item(), rows), num_rows=ROWS,
        planner="random", guard=True, batch_size=4, **options,
    )  # fmt: skip
    loader = PlannedLoader(accelerator, Rows(), plans, num_workers=workers)
    accelerator.register_for_checkpointing(loader)
    if resume:
        accelerator.load_state(folder / "checkpoint")
    seen, updates = [], []
    optimizer.optimizer.register_step_post_hook(lambda *_: updates.append(1))
    while loader.epoch < 2:
        for rows in loader:
            with accelerator.accumulate(model):
                accelerator.backward((model(rows[:, None] / ROWS) ** 2).mean())
                optimizer.step()
                optimizer.zero_grad()
            seen.append(rows.int().tolist())
            if len(seen) == stop:
                accelerator.save_state(folder / "checkpoint")
                return seen, len(updates)
    return seen, len(updates)


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (1, {}),
        (1, {"workers": 2}),
        (2, {}),
        (2, {"workers": 2, "even": False}),
        (2, {"accumulate": 2}),
        (2, {"scope": "global"}),
        (2, {"tail": "pad"}),
        (4, {"tail": "drop"}),
    ],
)
def test_every_step_sees_the_rows_of_its_plan(devices, options, tmp_path):
    results = run(train, devices, tmp_path, **options)
    expected = epochs_of(tmp_path / "plans", devices, 2)
    assert [seen for seen, _ in results] == expected
    steps = len(expected[0]) // 2
    updates = -(-steps // options.get("accumulate", 1))
    assert [count for _, count in results] == [2 * updates] * devices
    first, second = (Plan.load(tmp_path / "plans" / f"plan-000{e}.npz").metadata for e in (0, 1))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(("devices", "workers"), [(1, 2), (2, 0)])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_run_goes_on_in_its_epoch(devices, workers, share, tmp_path):
    stop = int(share * 2 * (12 if devices == 1 else 6))
    begun = run(train, devices, tmp_path, stop=stop, workers=workers)
    went_on = run(train, devices, tmp_path, resume=True, workers=workers)
    seen = [one[0] + other[0] for one, other in zip(begun, went_on, strict=True)]
    assert seen == epochs_of(tmp_path / "plans", devices, 2)


def train_free(folder):
    """The vectors that each step had, and those that rank 0 plans from in the end."""
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 4)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    inner = accelerator.unwrap_model(model)
    plans = EpochPlans(
        folder / "plans", embed=lambda rows: vectors(inner.bias[0].item(), rows)[0], num_rows=ROWS,
        embeddings="training", planner="random", guard=True, batch_size=4,
    )  # fmt: skip
    loader = PlannedLoader(accelerator, with_rows(Rows()), plans)
    seen = torch.zeros(ROWS, 4, dtype=torch.float16)
    while loader.epoch < 2:
        for batch, rows in loader:
            x = model(batch[:, None] / ROWS)
            plans.record(rows, x)
            assert batch.int().tolist() == rows.tolist()
            seen[rows] = x.detach().half()
            accelerator.backward((x**2).mean())
            optimizer.step()
            optimizer.zero_grad()
    return seen.numpy(), plans._vectors.collect(2)[:1]


@pytest.mark.parametrize("devices", [1, 2])
def test_free_embeddings(devices, tmp_path):
    results = run(train_free, devices, tmp_path)
    expected = results[0][0].copy()
    for (seen, _), steps in zip(
        results, epoch_of(tmp_path / "plans" / "plan-0001.npz", devices), strict=True
    ):
        rows = [row for step in steps for row in step]
        expected[rows] = seen[rows]
    np.testing.assert_array_equal(results[0][1], [expected])


def dealt(path, even):
    """The primitive: the parts of all devices in a loader that Accelerate prepares."""
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=even)
    )
    devices = accelerator.num_processes
    sampler = PlanBatchSampler(path, rank="all", world_size=devices)
    loader = accelerator.prepare(DataLoader(Rows(), batch_sampler=sampler))
    whole = [rows.int().tolist() for rows in loader]
    assert len(loader) == len(whole)
    return whole, [rows.int().tolist() for rows in skip_first_batches(loader, 2)]


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("scope", ["device", "global"])
def test_parts_of_all_devices(devices, even, scope, tmp_path):
    size = 4 * devices if scope == "global" else 4
    batching = Batching(size, scope=scope, world_size=devices)
    Plan.cut(range(ROWS), batching, num_rows=ROWS).save(tmp_path / "plan.npz")
    expected = epoch_of(tmp_path / "plan.npz", devices)
    results = run(dealt, devices, tmp_path / "plan.npz", even)
    assert results == [(steps, steps[2:]) for steps in expected]


def test_refusals(tmp_path):
    plan = Plan.cut(range(ROWS), Batching(4), num_rows=ROWS)
    for name in ("split_batches", "dispatch_batches", "use_stateful_dataloader"):
        accelerator = Accelerator(
            cpu=True, dataloader_config=DataLoaderConfiguration(**{name: True})
        )
        with pytest.raises(InputError, match=f"{name}=True: would"):
            PlannedLoader(accelerator, Rows(), plan)
    accelerator = Accelerator(cpu=True)
    with pytest.raises(InputError, match="data set: got 46 rows, but the plan is for 47"):
        PlannedLoader(accelerator, Rows(46), plan)
    with pytest.raises(InputError, match="got IterableDataset, which has no length"):
        PlannedLoader(accelerator, pairs().to_iterable_dataset(), plan)
    with pytest.warns(UserWarning, match="data set: was selected, sorted or shuffled"):
        PlannedLoader(accelerator, pairs().shuffle(seed=0), plan)
    materialized = pairs().add_column("batchplan_row", range(ROWS)[::-1])
    with pytest.raises(InputError, match="its column batchplan_row is not 0 to 46"):
        PlannedLoader(accelerator, materialized, plan)
    PlannedLoader(accelerator, with_rows(pairs()), plan)
    with pytest.raises(InputError, match="world_size=1, but the plan is for 2 devices"):
        PlannedLoader(
            accelerator, Rows(), Plan.cut(range(ROWS), Batching(4, world_size=2), num_rows=ROWS)
        )


def refused(folder):
    """What the processes are told if each has data, a plan or a rank of its own; and what they
    train on if they have equal data and plans."""
    accelerator = Accelerator(cpu=True)
    rank, rows = accelerator.process_index, pairs()

    def prepared(sampler):
        return accelerator.prepare(DataLoader(Rows(), batch_sampler=sampler))

    plan, single = folder / "plan-0.npz", folder / "single.npz"
    everywhere = {"rank": "all", "world_size": 2}
    said = []
    for make in (
        lambda: PlannedLoader(accelerator, Rows(), folder / f"plan-{rank}.npz"),
        lambda: PlannedLoader(accelerator, rows.select(range(ROWS)[:: 1 - 2 * rank]), plan),
        lambda: PlanBatchSampler(plan, rank=0, world_size=2) if rank else refuse(),
        lambda: next(iter(prepared(PlanBatchSampler(plan, rank=rank, world_size=2)))),
        lambda: next(iter(prepared(PlanBatchSampler(single, rank=0, world_size=1)))),
        lambda: PlanBatchSampler(single),
    ):
        with pytest.raises(InputError) as error, catch_warnings(action="ignore"):
            make()
        said.append(str(error.value))
    loader = PlannedLoader(accelerator, with_rows(rows), plan, collate_fn=list)
    assert len(list(loader)) == len(list(prepared(PlanBatchSampler(plan, **everywhere))))
    return said


def refuse():
    raise InputError("")


def test_what_differs_between_the_processes_is_refused(tmp_path):
    for name, order, devices in (("plan-0", 1, 2), ("plan-1", -1, 2), ("single", 1, 1)):
        plan = Plan.cut(range(ROWS)[::order], Batching(4, world_size=devices), num_rows=ROWS)
        plan.save(tmp_path / f"{name}.npz")
    first, second = run(refused, 2, tmp_path)
    first[2] = second[2]
    assert first == second
    for told, expected in zip(
        second,
        (
            "plan: rank 1 has another one than rank 0",
            "data set: rank 1 has another one than rank 0",
            "rank: got 0, but torch.distributed says that this is rank 1 of 2",
            'rank: accelerate deals the batches out to 2 processes; pass rank="all"',
            'rank: accelerate deals the batches out to 2 processes; pass rank="all"',
            "rank: got None with world_size=None, but the plan is for 1 device",
        ),
        strict=True,
    ):
        assert expected in told


def test_steps_are_not_skipped_by_accelerate():
    accelerator, plan = Accelerator(cpu=True), Plan.cut(range(ROWS), Batching(4), num_rows=ROWS)
    loader = PlannedLoader(accelerator, Rows(), plan)
    for skip in (skip_first_batches, accelerator.skip_first_batches):
        with pytest.raises(AttributeError, match="skip_first_batches needs; register the loader"):
            skip(loader, 3)
    assert not hasattr(loader, "dataset")
    loader.epoch, loader.steps = 1, 3  # as the message says
    assert [rows.int().tolist() for rows in loader] == [batch.tolist() for batch in plan][3:]
    assert (loader.epoch, loader.steps) == (2, 0)


def test_another_plan_than_that_of_the_checkpoint(tmp_path):
    accelerator = Accelerator(cpu=True)
    loader = PlannedLoader(accelerator, Rows(), Plan.cut(range(ROWS), Batching(4), num_rows=ROWS))
    next(iter(loader))
    state = loader.state_dict()
    assert state["steps"] == 1
    backwards = Plan.cut(range(ROWS)[::-1], Batching(4), num_rows=ROWS)
    with pytest.raises(InputError, match="go on with the plan of the checkpoint"):
        PlannedLoader(accelerator, Rows(), backwards).load_state_dict(state)


def test_a_checkpoint_between_epochs_is_of_the_plans_in_the_folder(tmp_path):
    def loader():
        plans = EpochPlans(tmp_path, "random", embed=vectors, num_rows=ROWS, batch_size=4)
        return PlannedLoader(Accelerator(cpu=True), Rows(), plans)

    completed = loader()
    list(completed)
    state = completed.state_dict()
    completed.sampler.series.end()
    resumed = loader()
    resumed.load_state_dict(state)
    assert (resumed.epoch, resumed.steps) == (1, 0)
    plan = Plan.load(tmp_path / "plan-0000.npz")
    other = Plan(plan.rows[::-1].copy(), plan.batch_offsets, plan.metadata)
    other.save(tmp_path / "plan-0000.npz", force=True)
    with pytest.raises(InputError, match="go on with the plan of the checkpoint"):
        loader().load_state_dict(state)


def test_an_epoch_that_was_set_is_not_that_of_accelerate(tmp_path):
    """In a single process, it sets the number of its passes, which begin with 0 after a restart."""

    def passes(sampler, begin, state=None):
        loader = Accelerator(cpu=True).prepare(DataLoader(Rows(), batch_sampler=sampler))
        if state is not None:
            sampler.load_state_dict(state)
        seen = []
        for epoch in range(begin, 3):
            sampler.set_epoch(epoch)
            seen += [rows.int().tolist() for rows in loader]
        return seen

    def sampler():
        plans = EpochPlans(tmp_path, "random", embed=vectors, num_rows=ROWS, batch_size=4)
        return PlanBatchSampler(plans, rank="all", world_size=1)

    first = sampler()
    assert [passes(first, 0)] == epochs_of(tmp_path, 1, 3)
    first.series.end()
    assert passes(sampler(), 1) == epochs_of(tmp_path, 1, 3)[0][12:]
    state = {**first.state_dict(), "epoch": 1, "position": 5, "plan": None}
    assert passes(sampler(), 1, state) == epochs_of(tmp_path, 1, 3)[0][17:]
    counted = sampler()
    loader = Accelerator(cpu=True).prepare(DataLoader(Rows(), batch_sampler=counted))
    counted.series.resume()
    seen = [rows.int().tolist() for _ in range(3) for rows in loader]
    assert seen == epochs_of(tmp_path, 1, 3)[0]


def test_a_data_set_in_another_order_does_not_resume(tmp_path):
    def loader(dataset):
        plans = EpochPlans(tmp_path, "random", embed=vectors, num_rows=ROWS, batch_size=4)
        return PlannedLoader(Accelerator(cpu=True), dataset, plans, collate_fn=list)

    begun = loader(pairs())
    next(iter(begun))
    state = begun.state_dict()
    begun.sampler.series.end()
    with pytest.raises(InputError, match="data set: is another one than that of the state, or in"):
        loader(pairs().shuffle(seed=0).flatten_indices()).load_state_dict(state)
    resumed = loader(pairs())
    resumed.load_state_dict(state)
    assert len(list(resumed)) == len(resumed) - 1
