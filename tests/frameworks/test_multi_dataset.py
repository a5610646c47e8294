"""Several data sets, each planned by its own columns and loss, in a SentenceTransformerTrainer."""

from __future__ import annotations

from itertools import chain, pairwise
from unittest import mock

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses

from batchplan import InputError, Plan
from batchplan.training.epochs import process_place
from batchplan.training.sentence_transformers import PlannedEpochs

from .processes import FailedError, run
from .shown import plan_of
from .stopping import Stop
from .texts import FRESH, QUICKLY, load_model, rows_of, save_model

SIZES = {"asked/answered": 22, "titles": 14, "code": 33}
ENDS = np.cumsum(list(SIZES.values())).tolist()
COLUMNS = {"asked/answered": ("question", "answer"), "titles": ("title", "body")}
LOSSES = {"titles": "CachedMultipleNegativesRankingLoss"}
TOTAL = ENDS[-1]
PLANNED = {**FRESH, "planner": "partition", "mega_batches": 1, "tail": "drop"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, TOTAL)
    return folder


def data_sets():
    """Row r of all data sets has the texts xr and yr, in columns of other names in each."""
    starts = dict(zip(SIZES, [0, *ENDS], strict=False))
    sets = {}
    for name, size in SIZES.items():
        rows = range(starts[name], starts[name] + size)
        x, y = COLUMNS.get(name, ("anchor", "positive"))
        sets[name] = Dataset.from_dict({x: [f"x{r}" for r in rows], y: [f"y{r}" for r in rows]})
    return sets


class Recorder(SentenceTransformerTrainer):
    """Keeps the rows that each step trains on, and the loss that it uses."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        first, second = (tokens for name, tokens in inputs.items() if name.endswith("_input_ids"))
        assert rows_of(first, TOTAL) == rows_of(second, TOTAL)
        self.seen.append(rows_of(first, TOTAL))
        return super().training_step(model, inputs, num_items_in_batch)


def make(folder, model_folder, *, gather=False, stop=None, arguments=None, given=None, **options):
    model = load_model(model_folder)
    kinds = {name: LOSSES.get(name, "MultipleNegativesRankingLoss") for name in SIZES}
    loss = {
        name: getattr(losses, kind)(model, gather_across_devices=gather)
        for name, kind in kinds.items()
    }
    sets = data_sets()
    plans = PlannedEpochs(sets, loss, folder=folder / "plans", **{**PLANNED, **options})
    settings = {**QUICKLY, "learning_rate": 1e-2, "batch_sampler": plans, **(arguments or {})}
    trainer = Recorder(
        model,
        SentenceTransformerTrainingArguments(str(folder / "run"), **settings),
        train_dataset=DatasetDict(sets) if given is None else given(sets),
        eval_dataset=DatasetDict(sets),
        loss=loss,
        callbacks=[plans, *([Stop(stop)] if stop else [])],
    )
    trainer.seen, trainer.planned = [], plans
    return trainer


def train(folder, model_folder, resume=False, **options):
    trainer = make(folder, model_folder, **options)
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer.seen


def set_of(row):
    return sum(row >= end for end in ENDS)


def batches_of(folder, number, epoch):
    """The batches of the plan of a data set, in rows of all."""
    (path,) = (folder / "plans").glob(f"*/{number}-*")
    plan, first = Plan.load(plan_of(path, epoch)), [0, *ENDS][number]
    rows = (plan.rows + first).tolist()
    return [rows[start:stop] for start, stop in pairwise(plan.batch_offsets)]


def check_steps(folder, seen, epochs=2, shared=False):
    """Require that in every step all devices train on one data set, on the batches of its plan in
    their order."""
    devices, steps = len(seen), len(seen[0]) // epochs
    for epoch in range(epochs):
        own = [rank[epoch * steps : (epoch + 1) * steps] for rank in seen]
        taken = [[], [], []]
        for parts in zip(*own, strict=True):
            sets = {set_of(row) for part in parts for row in part}
            assert len(sets) == 1
            taken[sets.pop()] += [list(chain(*parts))] if shared else parts
        for number, batches in enumerate(taken):
            planned = batches_of(folder, number, epoch)
            assert batches == planned[: len(batches)]
            yield len(batches) // (1 if shared else devices), len(planned)


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (1, {}),
        (1, {"arguments": {"dataloader_num_workers": 2}}),
        (2, {"arguments": {"gradient_accumulation_steps": 2}}),
        (2, {"embeddings": "training", "ahead": 0.3}),
        (4, {"arguments": {"per_device_train_batch_size": 3}}),
        (2, {"gather": True}),
        (1, {"embeddings": "training", "random_epochs": 0.5}),
        (2, {"embeddings": "training", "random_epochs": 0.5}),
    ],
)
def test_every_step_sees_a_batch_of_one_data_set(devices, options, tmp_path, saved):
    seen = run(train, devices, tmp_path, saved, **options)
    shared = "gather" in options
    for taken, planned in check_steps(tmp_path, seen, shared=shared):
        assert taken == planned / (1 if shared else devices)  # each once
    batches = [set_of(rows[0]) for rows in seen[0]]
    half = len(batches) // 2
    assert batches[:half] != batches[half:]  # in another order in each epoch


def test_round_robin(tmp_path, saved):
    arguments = {"multi_dataset_batch_sampler": "round_robin"}
    seen = run(train, 2, tmp_path, saved, arguments=arguments)
    assert [taken for taken, _ in check_steps(tmp_path, seen)] == [1] * 6
    assert [set_of(rows[0]) for rows in seen[0]] == [0, 1, 2] * 2


def test_equal_shares(tmp_path, saved):
    seen = train(tmp_path, saved, alpha=0, arguments={"num_train_epochs": 1})
    counts = np.bincount([set_of(rows[0]) for rows in seen])
    assert counts.tolist() == [6, 5, 5]  # of 5, 3 and 8 batches


@pytest.mark.parametrize(("devices", "workers"), [(1, 2), (2, 0)])
@pytest.mark.parametrize("way", [{}, {"embeddings": "training", "ahead": 0.5},
                                 {"embeddings": "training", "random_epochs": 1.5}])  # fmt: skip
def test_a_run_goes_on_in_its_epoch(devices, workers, way, tmp_path, saved):
    options = {"arguments": {"dataloader_num_workers": workers}, **way}
    stop = 16 // devices + 2
    begun = run(train, devices, tmp_path, saved, stop=stop, **options)
    went_on = run(train, devices, tmp_path, saved, resume=True, **options)
    seen = [one[:stop] + other for one, other in zip(begun, went_on, strict=True)]
    assert all(taken for taken, _ in check_steps(tmp_path, seen))


def test_each_has_its_prompts_and_its_similarity(tmp_path, saved, monkeypatch):
    asked = {}

    def encode(model, texts, *, prompt, **options):
        asked[texts[0]] = prompt
        return np.random.default_rng(0).standard_normal((len(texts), 4), np.float32)

    prompts = {"asked/answered": {"question": "ask: "}, "titles": "say: ", "code": {}}
    trainer = make(tmp_path, saved, arguments={"prompts": prompts})
    monkeypatch.setattr(SentenceTransformer, "encode", encode)
    trainer.planned.plans.for_epoch(0)
    assert asked == {"x0": "ask: ", "y0": "", "x22": "say: ", "y22": "say: ", "x36": "", "y36": ""}


def test_evaluations_are_not_planned(tmp_path, saved):
    trainer = make(tmp_path, saved, arguments={"eval_strategy": "steps", "eval_steps": 3})
    trainer.evaluate()
    assert not list((tmp_path / "plans").rglob("plan-*"))
    trainer.train()
    assert all(taken == planned for taken, planned in check_steps(tmp_path, [trainer.seen]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"alpha": 2}, "alpha: got 2, expected a number from 0 to 1"),
        (
            {"label_table": "t.parquet"},
            "label_table: got 3 data sets; alpha is for several. label_t",
        ),
        ({"temperature": 0.1}, "temperature: got 0.1 for the plan, but the loss has 0.05"),
        (
            {"arguments": {"multi_dataset_batch_sampler": lambda *_, **__: None}},
            "expected proportional or round_robin; or leave it out, and pass alpha",
        ),
        (
            {"arguments": {"per_device_train_batch_size": 16}},
            "titles: world size: 1 devices with batches of 16 take 16 rows per step, expected at",
        ),
    ],
)
def test_refusals(options, says, tmp_path, saved):
    with pytest.raises(InputError, match=says):
        make(tmp_path, saved, **options)
    assert not (tmp_path / "plans").exists()


@pytest.mark.parametrize(
    "given",
    [
        lambda sets: DatasetDict(dict(reversed(sets.items()))),
        lambda sets: DatasetDict({name: sets[name] for name in ("titles", "code")}),
        lambda sets: DatasetDict({**sets, "code": sets["titles"]}),
        lambda sets: sets["code"],
    ],
)
def test_other_data_sets_in_the_trainer(given, tmp_path, saved):
    with pytest.raises((InputError, ValueError), match=r"same dictionary|must be a `DatasetDict`"):
        make(tmp_path, saved, given=given).train()


def test_a_loss_for_each(tmp_path, saved):
    loss = losses.MultipleNegativesRankingLoss(load_model(saved))
    with pytest.raises(InputError, match="loss: none for asked/answered, code; pass a loss, or"):
        PlannedEpochs(data_sets(), {"titles": loss})
    streams = {name: own.to_iterable_dataset() for name, own in data_sets().items()}
    with pytest.raises(InputError, match=r"got a IterableDataset, expected a datasets.Dataset"):
        PlannedEpochs(streams, loss)
    with pytest.raises(InputError, match="alpha: got 1 data sets; alpha is for several"):
        PlannedEpochs(data_sets()["code"], loss, alpha=0.5)


def test_a_data_set_too_small_for_a_batch(tmp_path, saved):
    with pytest.raises(InputError, match=r"^titles: world size: 1 devices with batches of 16"):
        make(tmp_path, saved, arguments={"per_device_train_batch_size": 16}).train()
    assert not list(tmp_path.rglob("plan-*"))


def test_the_failure_of_one_process_reaches_the_others(tmp_path, saved):
    with pytest.raises(FailedError, match="column 'body': has 1 rows without text"):
        run(fail, 2, tmp_path, saved)


def test_processes_with_data_sets_in_different_orders(tmp_path, saved):
    """As of the files of a folder in the order of the disk. They would wait for each other."""
    with pytest.raises(FailedError, match="data set: rank 1 has another one than rank 0"):
        run(train_in_an_order_of_its_own, 2, tmp_path, saved)


def train_in_an_order_of_its_own(folder, model_folder):
    own = dict(list(data_sets().items())[:: 1 - 2 * process_place()[0]])
    with mock.patch(f"{__name__}.data_sets", return_value=own):
        train(folder, model_folder, timeout=15)


def fail(folder, model_folder):
    trainer = make(folder, model_folder)
    rows = trainer.planned._columns["titles"].dataset.to_dict()
    rows["body"][3] = None
    trainer.planned._columns["titles"].dataset = Dataset.from_dict(rows)
    trainer.planned.plans.for_epoch(0)
