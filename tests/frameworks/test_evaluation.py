"""Evaluations in the middle of an epoch, on the data set of the training: the training goes on with
the batches of its own plan. Those of sentence-transformers are in its file."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from batchplan.plans import Batching, Plan
from batchplan.training import EpochPlans, PlanBatchSampler
from batchplan.training.accelerate import PlannedLoader

from . import test_lightning, test_transformers
from .numbers import ROWS, Rows, vectors
from .processes import run
from .shown import epoch_of, epochs_of


def train_transformers(folder):
    trainer = test_transformers.make(folder, arguments={"eval_strategy": "steps", "eval_steps": 2})
    trainer.evaluate()
    trainer.train()
    trainer.predict(trainer.train_dataset)
    return trainer.seen


def train_lightning(folder, devices):
    class Validated(test_lightning.Model):
        def validation_step(self, rows, _step):
            return self.layer(rows[:, None])

        test_step = predict_step = validation_step

    trainer = Trainer(
        accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", logger=False,
        max_epochs=2, enable_checkpointing=False, enable_progress_bar=False, val_check_interval=2,
        enable_model_summary=False, default_root_dir=folder, **test_lightning.FLAGS,
    )  # fmt: skip
    model = Validated()
    data = test_lightning.planned(folder, model)
    data.val_dataloader = lambda: DataLoader(Rows(), batch_size=4)
    trainer.validate(model, data)
    trainer.fit(model, data)
    trainer.predict(model, DataLoader(Rows(), batch_size=4))
    return model.seen


@pytest.mark.parametrize("devices", [1, 2])
def test_trainers(devices, tmp_path):
    seen = run(train_transformers, devices, tmp_path / "transformers")
    assert seen == epochs_of(tmp_path / "transformers" / "plans", devices, 2)
    seen = run(train_lightning, devices, tmp_path / "lightning", devices)
    assert seen == epochs_of(tmp_path / "lightning" / "plans", devices, 2)


def series(folder):
    return EpochPlans(
        folder / "plans",
        "random",
        embed=lambda rows: vectors(0.0, rows),
        num_rows=ROWS,
        batch_size=4,
    )


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("workers", [0, 2])
def test_two_loaders_over_one_sampler(kind, workers, tmp_path):
    """The batches of each are right."""
    sampler = PlanBatchSampler(series(tmp_path))
    loader, other = (kind(Rows(), batch_sampler=sampler, num_workers=workers) for _ in range(2))
    sampler.set_epoch(1)
    seen = []
    for step, rows in enumerate(loader):
        seen.append(rows.int().tolist())
        if step == 2:
            assert [rows.int().tolist() for rows in other] == epoch_of(
                tmp_path / "plans" / "plan-0001.npz", 1
            )[0]
    assert seen == epoch_of(tmp_path / "plans" / "plan-0001.npz", 1)[0]
    assert sampler.state_dict()["position"] == 0


def test_a_pass_that_was_broken_off_goes_on(tmp_path):
    for source in (series(tmp_path), Plan.cut(range(ROWS), Batching(4), num_rows=ROWS)):
        loader = PlannedLoader(Accelerator(cpu=True), Rows(), source)
        for _ in loader:
            break
        assert loader.steps == 1
        assert len(list(loader)) == len(loader) - 1


def train_sharded(folder):
    """A loop whose model is spread over the processes: what rank 0 alone cannot run."""
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4))
    for part in (*model, model):
        fully_shard(part)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = (torch.from_numpy(side) for side in vectors(0.0))
    options = {"num_rows": ROWS, "batch_size": 4, "mega_batches": 1}
    plans = EpochPlans(folder, embed=lambda rows: (model(x[rows]), model(y[rows])), **options)
    rank, devices = distributed.get_rank(), distributed.get_world_size()
    sampler, seen = PlanBatchSampler(plans, rank=rank, world_size=devices), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for rows in sampler:
            optimizer.zero_grad()
            ((model(x[rows]) @ model(y[rows]).T) ** 2).mean().backward()
            optimizer.step()
            seen.append(rows)
    return seen


@pytest.mark.parametrize("devices", [2, 4])
def test_a_sharded_model(devices, tmp_path):
    assert run(train_sharded, devices, tmp_path) == epochs_of(tmp_path, devices, 2)
    first, second = (Plan.load(tmp_path / f"plan-000{e}.npz").metadata for e in (0, 1))
    assert first.fingerprint != second.fingerprint
