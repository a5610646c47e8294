"""What silently undoes a plan in each framework, provoked at its training step with a sampler that
a user would write, is named by `batchplan.consumption`; what the adapters do is exact."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
import webdataset
from accelerate import Accelerator, skip_first_batches
from lightning.pytorch import LightningModule
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer import losses
from torch.utils.data import DataLoader, DistributedSampler, Subset
from transformers import Trainer, TrainingArguments

from batchplan.consumption import Trace, verify
from batchplan.consumption.plans import read_plans
from batchplan.materialize import materialize
from batchplan.plans import Batching, Plan
from batchplan.training import EpochPlans, Recorder, with_rows
from batchplan.training.accelerate import PlannedLoader
from batchplan.training.lightning import PlannedData
from batchplan.training.sentence_transformers import PlannedEpochs as PlannedTexts
from batchplan.training.transformers import PlannedBatches, PlannedEpochs

from .numbers import Rows, vectors
from .processes import FailedError, run
from .shown import run_of
from .stopping import Stop
from .test_lightning import Stop as StopLightning
from .texts import load_model, pairs, save_model

ROWS, SIZE = 166, 4


class Batches:
    """What a user writes first: the batches of a plan, of a part of it, or of the epoch's plan."""

    def __init__(self, *plans, rank=None, devices=1, **attributes):
        self.plans, self.epoch = plans, 0
        self.part = slice(rank, None, devices)
        vars(self).update(attributes)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        plan = self.plans[min(self.epoch, len(self.plans) - 1)]
        return iter([batch.tolist() for batch in plan.batches()][self.part])

    def __len__(self):
        return len([*iter(self)])


def plan_of(devices=1, seed=0):
    order = np.random.default_rng(seed).permutation(ROWS)
    return Plan.cut(order, Batching(SIZE, world_size=devices), num_rows=ROWS)


def causes(plans, trace, **options):
    """The names of the causes, and which share of the batches is intact."""
    known = dict(enumerate(plans)) if isinstance(plans, list) else read_plans([plans])
    verdict = verify(known, Trace(trace), **options)
    assert verdict.exact == (not verdict.findings)
    return [cause.name for cause in verdict.findings]


# accelerate


def train_with_accelerate(folder, case):
    accelerator = Accelerator(cpu=True)
    rank, devices = accelerator.process_index, accelerator.num_processes
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01))
    recorder, plans = Recorder(folder), [plan_of(devices, seed) for seed in range(2)]

    def train(loader):
        for rows in loader:
            accelerator.backward((model(rows[:, None] / ROWS) ** 2).mean())
            optimizer.step()

    def prepared(batches):
        return accelerator.prepare(DataLoader(Rows(ROWS), batch_sampler=batches))

    if case == "planned":
        series = EpochPlans(
            folder / "plans", embed=lambda rows: vectors(0.0, rows, ROWS), num_rows=ROWS,
            planner="random", batch_size=SIZE,
        )  # fmt: skip
        loader = recorder.wrap(PlannedLoader(accelerator, Rows(ROWS), series))
        train(loader)
        train(loader)
    elif case == "ranked":
        train(
            recorder.wrap(prepared(Batches(plans[0], rank=rank, devices=devices, batch_size=SIZE)))
        )
    elif case == "sized":
        train(recorder.wrap(prepared(Batches(plans[0], batch_size=SIZE))))
    elif case == "one device":
        train(recorder.wrap(prepared(Batches(plan_of(), batch_size=SIZE))))
    elif case == "whole":
        train(recorder.wrap(DataLoader(Rows(ROWS), batch_sampler=Batches(plans[0]))))
    elif case == "rows":
        subset = Subset(Rows(ROWS), plan_of().rows.tolist())
        sampler = DistributedSampler(subset, shuffle=False)
        train(recorder.wrap(DataLoader(subset, SIZE, sampler=sampler)))
    elif case == "resumed":
        loader = prepared(Batches(*plans))
        train(recorder.wrap(loader))
        loader = skip_first_batches(prepared(Batches(*plans)), 2)
        loader.set_epoch(1)
        train(recorder.wrap(loader, epoch=1, step=2))


def test_accelerate(tmp_path):
    for devices in (1, 2, 4):
        run(train_with_accelerate, devices, tmp_path / f"exact {devices}", "planned")
        assert causes(tmp_path / f"exact {devices}" / "plans", tmp_path / f"exact {devices}") == []
    for devices, case, plan, *names in (
        (2, "ranked", plan_of(2), "dealt out twice"),
        (4, "ranked", plan_of(4), "dealt out twice"),
        (2, "whole", plan_of(2), "the whole plan on every rank"),
        (2, "rows", plan_of(), "dealt out row by row"),
        (2, "one device", plan_of(), "padded from the first batches"),
    ):
        trace = tmp_path / f"{case} {devices}"
        run(train_with_accelerate, devices, trace, case)
        assert causes([plan], trace) == names, (case, devices)


def test_accelerate_hangs(tmp_path):
    """A short tail: a rank has a step more, and waits for the other for ever."""
    with pytest.raises(FailedError):
        run(train_with_accelerate, 2, tmp_path, "sized")
    assert causes([plan_of(2)], tmp_path) == ["padded from the first batches", "unequal steps"]


def test_accelerate_resumes_with_the_plan_of_before(tmp_path):
    run(train_with_accelerate, 2, tmp_path, "resumed")
    assert causes([plan_of(2, 0), plan_of(2, 1)], tmp_path) == ["last epoch's plan"]


# transformers


class Tower(torch.nn.Module):
    """A model whose loss is small if its inputs are."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, rows):
        return {"loss": (self.layer(rows[:, None] / ROWS) ** 2).mean()}


class PlannedTrainer(PlannedBatches, Trainer):
    pass


class OwnBatches(Trainer):
    """A Trainer with the loader that a user would write."""

    batches = None

    def get_train_dataloader(self):
        loader = DataLoader(
            self.train_dataset, batch_sampler=self.batches, collate_fn=self.data_collator
        )
        return self.accelerator.prepare(loader)


def collate(rows):
    return {"rows": torch.stack(rows)}


def train_with_transformers(folder, case):
    dataset, callbacks, kind = Rows(ROWS), [], Trainer
    plans = [plan_of(2, seed) for seed in range(2)]
    if case == "planned":
        callbacks, kind = (
            [
                PlannedEpochs(
                    dataset,
                    partial(vectors, 0.0, num_rows=ROWS),
                    "random",
                    folder=folder / "plans",
                )
            ],
            PlannedTrainer,
        )
    elif case == "subset":
        dataset = Subset(dataset, plans[0].rows.tolist())
    else:
        kind = OwnBatches

    def start(resume=False, stop=None):
        arguments = TrainingArguments(
            str(folder / "run"), num_train_epochs=2, per_device_train_batch_size=SIZE, use_cpu=True,
            report_to="none", disable_tqdm=True, save_strategy="no", remove_unused_columns=False,
            ignore_data_skip=case == "no skip",
        )  # fmt: skip
        trainer = kind(
            Tower(), arguments, collate, dataset, callbacks=callbacks + [Stop(stop)] * bool(stop)
        )
        trainer.batches = Batches(*plans[: 1 + (case == "resumed")])
        Recorder(folder).attach(trainer)
        trainer.train(resume_from_checkpoint=resume or None)

    if case == "subset":
        return start()
    start(stop=25)
    start(resume=True)


def test_transformers(tmp_path):
    """The planned run, and two others, go on at step 4 of epoch 1."""
    for case, plans, *names in (
        ("planned", None),
        ("subset", [plan_of(2)], "shuffled"),
        ("resumed", [plan_of(2, 0), plan_of(2, 1)], "last epoch's plan"),
        ("no skip", [plan_of(2)], "restarted at batch 0"),
    ):
        run(train_with_transformers, 2, tmp_path / case, case)
        assert causes(plans or run_of(tmp_path / case / "plans"), tmp_path / case) == names, case


# sentence-transformers


class ByTheDocs(DefaultBatchSampler):
    """As the documentation of sentence-transformers says."""

    def __init__(self, dataset, batch_size, drop_last, **options):
        super().__init__(dataset, batch_size=batch_size, drop_last=drop_last, **options)
        self.batches = Batches(plan_of(2))

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


class Half(DefaultBatchSampler):
    """The batches of a plan that are of a data set of its own."""

    def __init__(self, dataset, batch_size, drop_last, **options):
        super().__init__(dataset, batch_size=batch_size, drop_last=drop_last, **options)
        rows = [int(text[1:]) for text in dataset["anchor"]]
        batches = (batch.tolist() for batch in two_sources().batches())
        self.batches = [[rows.index(row) for row in batch] for batch in batches if batch[0] in rows]

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def two_sources():
    """Batches of the first 120 rows, and of the others."""
    return Plan.cut(range(ROWS), Batching(SIZE), num_rows=ROWS)


def train_with_texts(folder, model, case):
    dataset, model = pairs(ROWS), load_model(model)
    loss = losses.MultipleNegativesRankingLoss(model)
    planned = case == "planned"
    two = {"a": dataset.select(range(120)), "b": dataset.select(range(120, ROWS))}
    plans = PlannedTexts(dataset, loss, "random", folder=folder / "plans")
    sampler = {"planned": plans, "none": Batches(plan_of()), "robin": Half}.get(case, ByTheDocs)
    trainer = SentenceTransformerTrainer(
        model,
        SentenceTransformerTrainingArguments(
            str(folder / "run"), num_train_epochs=1 + planned, batch_sampler=sampler, use_cpu=True,
            per_device_train_batch_size=2 * SIZE if case == "large" else SIZE, report_to="none",
            disable_tqdm=True, save_strategy="no", multi_dataset_batch_sampler="round_robin",
        ),
        train_dataset=dataset if case != "robin" else two,
        loss=loss,
        callbacks=[plans] * planned,
    )  # fmt: skip
    Recorder(folder).attach(trainer)
    trainer.train()


def test_sentence_transformers(tmp_path):
    save_model(tmp_path / "model", ROWS)
    for devices, case, plans, *names in (
        (2, "planned", None),
        (2, "docs", [plan_of(2)], "tail dropped"),
        (2, "large", [plan_of(2)], "zero steps"),
        (1, "none", [plan_of()], "single rows"),
        (1, "robin", [two_sources()], "another order"),
    ):
        run(train_with_texts, devices, tmp_path / case, tmp_path / "model", case)
        assert causes(plans or run_of(tmp_path / case / "plans"), tmp_path / case) == names, case


# Lightning


def train_with_lightning(folder, devices, case):
    from lightning.pytorch import Trainer

    dataset, flags = with_rows(Rows(ROWS)), {"use_distributed_sampler": case == "subset"}
    plan = plan_of(devices)
    if case == "planned":
        flags["reload_dataloaders_every_n_epochs"] = 1
        data = PlannedData(
            dataset, folder=folder / "plans", embed=lambda rows: vectors(0.0, rows, ROWS),
            planner="random", batch_size=SIZE,
        )  # fmt: skip
    elif case == "subset":
        data = DataLoader(Subset(dataset, plan_of().rows.tolist()), batch_size=SIZE)
    elif case == "whole":
        data = DataLoader(dataset, batch_sampler=Batches(plan_of()))
    else:
        data = DataLoader(dataset, batch_sampler=Batches(plan))

    def start(resume=None, stop=None):
        trainer = Trainer(
            accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto",
            max_epochs=2 if case == "planned" else 1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
            callbacks=[StopLightning(folder / "checkpoint", stop)] * bool(stop), **flags,
        )  # fmt: skip
        Recorder(folder).attach(trainer)
        trainer.fit(Module(), data, ckpt_path=resume)

    if case in ("subset", "whole"):
        return start()
    start(stop=7)
    start(resume=folder / "checkpoint")


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, rows, _step):
        return (self.layer(rows[:, None] / ROWS) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def test_lightning(tmp_path):
    for devices, case, plans, *names in (
        (2, "planned", None),
        (1, "restarted", [plan_of()], "restarted at batch 0"),
        (2, "subset", [plan_of()], "shuffled"),
        (2, "whole", [plan_of()], "the whole plan on every rank"),
    ):
        run(train_with_lightning, devices, tmp_path / case, devices, case)
        assert causes(plans or run_of(tmp_path / case / "plans"), tmp_path / case) == names, case


# WebDataset


def stream(folder, trace, *, workers=0, shuffle=0):
    shards = sorted(map(str, folder.glob("*.tar")))
    dataset = webdataset.WebDataset(shards, shardshuffle=False, nodesplitter=None).decode()
    if shuffle:
        dataset = dataset.shuffle(shuffle)
    dataset = dataset.batched(SIZE, collation_fn=list)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    for samples in Recorder(trace).wrap(loader):
        assert "batchplan_row" not in samples[0]["json"]


def test_webdataset(tmp_path):
    plan = plan_of()
    pairs(ROWS).to_parquet(tmp_path / "data.parquet")
    options = {"format": "webdataset", "shard_rows": 30}
    materialize(plan, tmp_path / "data.parquet", tmp_path / "planned", **options)
    for case, reading, *names in (
        ("exact", {}),
        ("workers", {"workers": 2}, "split across workers"),
        ("shuffled", {"shuffle": 1000}, "shuffled"),
    ):
        stream(tmp_path / "planned", tmp_path / case, **reading)
        assert causes([plan], tmp_path / case) == names
