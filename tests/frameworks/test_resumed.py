"""Each adapter, with fresh vectors and those of the training, stopped anywhere and resumed in a new
process: every step sees the rows of its plan."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from accelerate import Accelerator

from batchplan.training import EpochPlans, with_rows
from batchplan.training.accelerate import PlannedLoader
from batchplan.training.epochs import process_place
from batchplan.training.lightning import PlannedData

from . import test_lightning, test_sentence_transformers, test_transformers
from .numbers import ROWS, Rows
from .processes import run
from .shown import epochs_of
from .texts import save_model

EPOCHS = 3
WAYS = {"fresh": {}, "training": {"embeddings": "training", "ahead": 0.4}}
HARD = {"planner": "partition", "mega_batches": 1, "tail": "drop"}


def direction(rows):
    """What the models below make of rows: vectors that depend on the row alone."""
    rows = torch.as_tensor(rows, dtype=torch.float32)
    return torch.stack([torch.sin(rows), torch.cos(3 * rows), torch.ones(len(rows))], dim=1)


def with_accelerate(folder, *, stop, resume, **way):
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01))
    plans = EpochPlans(
        folder / "plans", embed=direction, num_rows=ROWS, batch_size=4, epochs=EPOCHS, **HARD, **way
    )
    loader = PlannedLoader(accelerator, with_rows(Rows()), plans)
    accelerator.register_for_checkpointing(loader)
    if resume:
        accelerator.load_state(folder / "checkpoint")
    seen = []
    while loader.epoch < EPOCHS:
        for batch, rows in loader:
            seen.append(batch.int().tolist())
            if way:
                plans.record(rows, direction(batch))
            accelerator.backward((model(batch[:, None] / ROWS) ** 2).mean())
            optimizer.step()
            optimizer.zero_grad()
            if len(seen) == stop:
                accelerator.save_state(folder / "checkpoint")
                return seen
        if len(seen) + 0.5 == stop:
            accelerator.save_state(folder / "checkpoint")
            break
    return seen


def with_lightning(folder, *, stop, resume, **way):
    class Model(test_lightning.Model):
        def training_step(self, batch, step):
            numbers, rows = batch
            if way:
                self.trainer.datamodule.plans.record(rows, direction(numbers))
            return super().training_step(numbers, step)

    data = PlannedData(
        with_rows(Rows()), folder=folder / "plans", embed=direction, batch_size=4, **HARD, **way
    )
    path, devices = folder / "checkpoint", process_place()[1]
    callbacks = [test_lightning.Stop(path, stop)] if stop else []
    model, resume = Model(), path if resume else None
    return test_lightning.fit(
        data, folder, devices, model=model, epochs=EPOCHS, resume=resume, callbacks=callbacks
    )


class RecordedTrainer(test_transformers.Recorder):
    """Records what `direction` makes of the rows, if its plans are made from that."""

    def compute_loss(self, model, inputs, *others, **named):
        plans = test_transformers.plans_in(self)
        if plans.options.get("embeddings") == "training":
            plans.record(direction(inputs["rows"]))
        return super().compute_loss(model, inputs, *others, **named)


def with_transformers(folder, *, stop, resume, **way):
    return test_transformers.train(
        folder, stop=stop, resume=resume, kind=RecordedTrainer, embed=direction,
        arguments={"num_train_epochs": EPOCHS}, **HARD, **way,
    )[0]  # fmt: skip


def with_sentence_transformers(folder, *, stop, resume, loss, **way):
    return test_sentence_transformers.train(
        folder, folder / "model", stop=stop, resume=resume, loss=loss,
        arguments={"num_train_epochs": EPOCHS}, **HARD, **way,
    )[0]  # fmt: skip


LOSSES = ("MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss", "MatryoshkaLoss")
PROGRAMS = {
    "accelerate": with_accelerate,
    "lightning": with_lightning,
    "transformers": with_transformers,
    **{loss: partial(with_sentence_transformers, loss=loss) for loss in LOSSES},
}


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_step_sees_the_rows_of_its_plan(name, way, devices, tmp_path):
    goes_on(name, way, devices, 1.5, 0, tmp_path)


@pytest.mark.parametrize(("epochs", "more"), [(0.5, 0), (1, 0), (1, 0.5), (EPOCHS, 0.5)])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in LOSSES[1:]])
def test_a_run_may_stop_anywhere(name, epochs, more, tmp_path):
    goes_on(name, "fresh", 1, epochs, more, tmp_path)


def goes_on(name, way, devices, epochs, more, folder):
    """Stop after a step, or, with a half more, after the end of its epoch; and resume."""
    program, options = PROGRAMS[name], WAYS[way]
    if name in LOSSES:
        save_model(folder / "model")
    stop = int(epochs * (ROWS // (4 * devices)))
    begun = run(program, devices, folder, stop=stop + more, resume=False, **options)
    went_on = run(program, devices, folder, stop=None, resume=True, **options)
    seen = [one[:stop] + other for one, other in zip(begun, went_on, strict=True)]
    assert seen == epochs_of(folder / "plans", devices, EPOCHS)
    left = sorted(path.name for path in (folder / "plans").rglob("part-*"))
    assert left == []
