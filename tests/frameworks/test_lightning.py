"""Planned batches in a lightning.Trainer, seen at the training step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from lightning.pytorch import Callback, LightningModule, Trainer

from batchplan import InputError
from batchplan.plans import Batching, Plan
from batchplan.training import EpochPlans, lightning, with_rows
from batchplan.training.epochs import process_place
from batchplan.training.lightning import PlannedData

from .numbers import ROWS, Rows, vectors
from .processes import FailedError, run
from .shown import epoch_of, epochs_of, run_of
from .texts import pairs

FLAGS = {"use_distributed_sampler": False, "reload_dataloaders_every_n_epochs": 1}


class Model(LightningModule):
    """Keeps the rows that each step trains on."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, rows, _step):
        self.seen.append(rows.int().tolist())
        return (self.layer(rows[:, None] / ROWS) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Stop(Callback):
    """Saves a checkpoint after a step, or after the end of its epoch (a half more), and ends."""

    def __init__(self, path, step):
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer, *_, more=0):
        if trainer.global_step + more == self.step:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer, *_):
        self.on_train_batch_end(trainer, more=0.5)


def fit(data, folder, devices, *, model=None, epochs=2, resume=None, callbacks=(), **flags):
    trainer = Trainer(
        accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto",
        max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, callbacks=list(callbacks),
        **{**FLAGS, **flags},
    )  # fmt: skip
    model = model or Model()
    trainer.fit(model, data, ckpt_path=resume)
    return model.seen


def planned(folder, model, planner="random", **options):
    def embed(rows):
        assert not model.training
        return vectors(model.layer.weight.item(), rows)

    return PlannedData(
        Rows(),
        folder=folder / "plans",
        embed=embed,
        planner=planner,
        batch_size=4,
        **({"guard": True} if planner == "random" else {}),
        **options,
    )


def train(folder, devices, *, resume=False, stop=None, workers=0, **options):
    model = Model()
    data = planned(folder, model, loader={"num_workers": workers}, **options)
    path = folder / "checkpoint"
    callbacks = [Stop(path, stop)] if stop else []
    resume = path if resume else None
    return fit(data, folder, devices, model=model, resume=resume, callbacks=callbacks)


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (1, {}),
        (1, {"workers": 2, "tail": "drop"}),
        (2, {}),
        (2, {"workers": 2, "scope": "global"}),
        (4, {"tail": "pad"}),
    ],
)
def test_every_step_sees_the_rows_of_its_plan(devices, options, tmp_path):
    seen = run(train, devices, tmp_path, devices, **options)
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    folder = run_of(tmp_path / "plans")
    first, second = (Plan.load(folder / f"plan-000{e}.npz").metadata for e in (0, 1))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(("devices", "workers"), [(1, 2), (2, 0)])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_run_goes_on_in_its_epoch(devices, workers, share, tmp_path):
    stop = int(share * 2 * (12 if devices == 1 else 6))
    begun = run(train, devices, tmp_path, devices, stop=stop, workers=workers)
    went_on = run(train, devices, tmp_path, devices, resume=True, workers=workers)
    seen = [one[:stop] + other for one, other in zip(begun, went_on, strict=True)]
    assert seen == epochs_of(tmp_path / "plans", devices, 2)


class Interrupt(Callback):
    def on_train_batch_end(self, trainer, *_):
        raise SystemExit


def test_each_run_has_a_folder_of_its_own(tmp_path):
    """In that of the Trainer, also after a run that was interrupted."""
    model, runs = Model(), tmp_path / "_plans"
    data = PlannedData(
        Rows(), embed=lambda rows: vectors(0.0, rows), planner="random", batch_size=4
    )
    with pytest.raises(SystemExit):
        fit(data, tmp_path, 1, model=model, callbacks=[Interrupt()])
    (first,) = runs.iterdir()
    model.seen.clear()
    fit(data, tmp_path, 1, model=model, epochs=1, callbacks=[Stop(tmp_path / "kept", 3)])
    (second,) = {*runs.iterdir()} - {first}
    resumed = Model()
    fit(data, tmp_path, 1, model=resumed, resume=tmp_path / "kept")
    assert {*runs.iterdir()} == {first, second}
    assert model.seen[:3] + resumed.seen == epochs_of(second, 1, 2)[0]


class Kept(Model):
    """Records the vectors of its steps."""

    def training_step(self, batch, step):
        numbers, rows = batch
        assert numbers.int().tolist() == rows.tolist()
        self.trainer.datamodule.plans.record(rows, torch.stack([numbers] * 3, dim=1))
        return super().training_step(numbers, step)


def train_on_vectors(folder, devices, model=None, **flags):
    model, sides = model or Kept(), []
    data = PlannedData(
        with_rows(Rows()), folder=folder / "plans", embed=lambda rows: -1 - np.stack([rows] * 3, 1),
        embeddings="training", planner="random", guard=True, batch_size=4,
    )  # fmt: skip

    class Look(Callback):
        def on_train_end(self, *_):
            sides.extend(data.plans._vectors.store.sides)

    fit(data, folder, devices, model=model, callbacks=[Look()], **flags)
    return sides


@pytest.mark.parametrize("devices", [1, 2])
def test_vectors_of_the_training(devices, tmp_path):
    (side,), *others = run(train_on_vectors, devices, tmp_path, devices)
    assert side[:, 0].tolist() == [*range(ROWS)]
    assert others == [[]] * (devices - 1)


class Checked(Kept):
    """Is validated within its epochs."""

    def validation_step(self, batch, _):
        self.layer(batch.float()[:, None])

    def val_dataloader(self):
        return torch.utils.data.DataLoader(torch.arange(5), batch_size=2)


def test_validation_within_an_epoch_changes_no_rows(tmp_path):
    model = Checked()
    (side,) = train_on_vectors(tmp_path, 1, model, val_check_interval=3)
    assert [model.seen] == epochs_of(tmp_path / "plans", 1, 2)
    assert side[:, 0].tolist() == [*range(ROWS)]


@pytest.mark.parametrize(("epochs", "known"), [(1, 1), (2, 2), (-1, None)])
def test_plans_know_how_many_epochs_the_trainer_trains(epochs, known, tmp_path, monkeypatch):
    """None is planned ahead after the last."""
    asked = []

    def plans(*arguments, epochs, **options):
        asked.append(epochs)
        return EpochPlans(*arguments, epochs=epochs, **options)

    monkeypatch.setattr(lightning, "EpochPlans", plans)
    model = Model()
    fit(planned(tmp_path, model), tmp_path, 1, model=model, epochs=epochs, max_steps=1)
    assert asked == [known]


def test_a_schedule_ends_with_the_last_epoch(tmp_path):
    options = {"planner": "rwr", "restart": "0.2:0.05"}
    train(tmp_path, 1, stop=3, **options)
    train(tmp_path, 1, resume=True, **options)
    folder = run_of(tmp_path / "plans")
    plans = [Plan.load(folder / f"plan-000{epoch}.npz") for epoch in (0, 1)]
    assert [plan.metadata.metrics["restart"] for plan in plans] == pytest.approx([0.2, 0.05])


def plan(devices=1):
    return Plan.cut(range(ROWS), Batching(4, world_size=devices), num_rows=ROWS)


def test_a_single_plan(tmp_path):
    plan().save(tmp_path / "plan.npz")
    seen = fit(PlannedData(Rows(), tmp_path / "plan.npz"), tmp_path, 1)
    assert seen == 2 * epoch_of(tmp_path / "plan.npz", 1)[0]


def test_a_data_set_in_another_order_does_not_resume(tmp_path):
    rows, stop = Dataset.from_dict({"row": range(ROWS)}), [Stop(tmp_path / "kept", 3)]

    def data(dataset):
        return PlannedData(dataset, plan(), loader={"collate_fn": numbers})

    def numbers(rows):
        return torch.tensor([float(row["row"]) for row in rows])

    seen = fit(data(rows), tmp_path, 1, epochs=1, callbacks=stop)[:3]
    backwards = rows.select(range(ROWS)[::-1]).flatten_indices()
    with pytest.raises(InputError, match="data set: is another one than that of the state"):
        fit(data(backwards), tmp_path, 1, epochs=1, resume=tmp_path / "kept")
    seen += fit(data(rows), tmp_path, 1, epochs=1, resume=tmp_path / "kept")
    assert [row for step in seen for row in step] == [*range(ROWS)]


def on_a_plan_of_its_own(folder):
    order = range(ROWS)[:: 1 - 2 * process_place()[0]]
    own = Plan.cut(order, Batching(4, world_size=2), num_rows=ROWS)
    fit(PlannedData(Rows(), own), folder, 2)


def test_processes_with_different_plans(tmp_path):
    with pytest.raises(FailedError, match="plan: rank 1 has another one than rank 0"):
        run(on_a_plan_of_its_own, 2, tmp_path)


@pytest.mark.parametrize(
    ("made", "flags", "says"),
    [
        (plan(), {"use_distributed_sampler": True}, "use_distributed_sampler=True: would deal the"),
        (plan(), {"reload_dataloaders_every_n_epochs": 0}, "every_n_epochs=0: would train every"),
        (plan(2), {}, "world_size=1, but the plan is for 2 devices"),
        (Plan.cut(range(9), Batching(4), num_rows=9), {}, "got 47 rows, but the plan is for 9"),
    ],
)
def test_refusals(made, flags, says, tmp_path):
    with pytest.raises(InputError, match=says):
        fit(PlannedData(Rows(), made), tmp_path, 1, **flags)


def test_arguments():
    with pytest.raises(InputError, match="pass either a plan, or embed to plan"):
        PlannedData(Rows())
    with pytest.raises(InputError, match="options: got batch_size with a plan"):
        PlannedData(Rows(), plan(), batch_size=4)
    with pytest.raises(InputError, match="got IterableDataset, which has no length"):
        PlannedData(pairs().to_iterable_dataset(), plan())
    with pytest.warns(UserWarning, match="data set: was selected, sorted or shuffled"):
        PlannedData(pairs().shuffle(seed=0), plan())
