"""Planned epochs in a transformers.Trainer, seen at the training step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

from batchplan import InputError, Plan
from batchplan.training.checks import check_same_rows
from batchplan.training.transformers import PlannedBatches, PlannedEpochs

from .numbers import ROWS, Rows, vectors
from .processes import run
from .shown import epochs_of, last_vectors, run_of
from .stopping import Stop


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, rows):
        return {"loss": (self.layer(rows[:, None] / ROWS) ** 2).mean()}


def plans_in(trainer):
    (plans,) = (one for one in trainer.callback_handler.callbacks if type(one) is PlannedEpochs)
    return plans


class Kept(PlannedBatches, Trainer):
    """Trains on plans from the vectors of its steps."""

    def compute_loss(self, model, inputs, *others, **named):
        plans_in(self).record(torch.stack([inputs["rows"]] * 3, dim=1))
        return super().compute_loss(model, inputs, *others, **named)


class Recorder(PlannedBatches, Trainer):
    """Keeps the rows that each step trains on."""

    seen = ()

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.seen = [*self.seen, inputs["rows"].int().tolist()]
        return super().training_step(model, inputs, num_items_in_batch)


def collate(rows):
    return {"rows": torch.stack(rows)}


def embed(model):
    return lambda rows: vectors(model.layer.weight.item(), rows)


def make(folder, *, kind=Recorder, stop=None, arguments=None, plans=True, **options):
    dataset, model = Rows(), Model()
    equal = {} if "planner" in options else {"guard": True}  # so that it depends on vectors
    options = {"embed": embed(model), "planner": "random", **equal, **options}
    planned = PlannedEpochs(dataset, folder=folder / "plans", **options)
    settings = {
        "num_train_epochs": 2, "per_device_train_batch_size": 4, "use_cpu": True,
        "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
        "remove_unused_columns": False, "learning_rate": 1e-2, **(arguments or {}),
    }  # fmt: skip
    return kind(
        model,
        TrainingArguments(str(folder / "run"), **settings),
        train_dataset=dataset,
        eval_dataset=dataset,
        data_collator=collate,
        callbacks=[planned] * plans + ([Stop(stop)] if stop else []),
    )


def train(folder, *, resume=False, **options):
    trainer = make(folder, **options)
    trainer.train(resume_from_checkpoint=resume or None)
    return list(trainer.seen), trainer.state.global_step


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (1, {}),
        (1, {"arguments": {"dataloader_num_workers": 2, "dataloader_persistent_workers": True}}),
        (1, {"every": 2}),
        (2, {}),
        (2, {"arguments": {"dataloader_num_workers": 2, "gradient_accumulation_steps": 4}}),
        (2, {"arguments": {"accelerator_config": {"even_batches": False}}, "scope": "global"}),
        (4, {"tail": "pad"}),
    ],
)
def test_every_step_sees_the_rows_of_its_plan(devices, options, tmp_path):
    results = run(train, devices, tmp_path, **options)
    folder = run_of(tmp_path / "plans")
    if "every" in options:
        (folder / "plan-0001.npz").symlink_to("plan-0000.npz")
    expected = epochs_of(tmp_path / "plans", devices, 2)
    assert [seen for seen, _ in results] == expected
    accumulated = options.get("arguments", {}).get("gradient_accumulation_steps", 1)
    updates = -(-len(expected[0]) // 2 // accumulated)
    assert [step for _, step in results] == [2 * updates] * devices
    first, second = (Plan.load(folder / f"plan-000{e}.npz").metadata for e in (0, 1))
    assert (first.fingerprint != second.fingerprint) == ("every" not in options)


def train_on_vectors(folder):
    trainer = make(
        folder, kind=Kept, embed=lambda rows: -1 - np.stack([rows] * 3, 1), embeddings="training",
        arguments={"gradient_accumulation_steps": 2},
    )  # fmt: skip
    with last_vectors() as kept:
        trainer.train()
    return kept


@pytest.mark.parametrize("devices", [1, 2])
def test_vectors_of_the_training(devices, tmp_path):
    """Each row's vector is three times its own number."""
    (side,), *others = run(train_on_vectors, devices, tmp_path)
    assert side[:, 0].tolist() == [*range(ROWS)]
    assert others == [[]] * (devices - 1)


@pytest.mark.parametrize("when", ["steps", "epoch"])
def test_vectors_of_evaluations_are_not_recorded(when, tmp_path):
    """Where the loss is computed, also that of other rows."""

    class Evaluated(Kept):
        def prediction_step(self, model, inputs, *_others, **_named):
            with torch.no_grad():
                return self.compute_loss(model, {"rows": -inputs["rows"]}), None, None

    evaluations = {"eval_strategy": when, "eval_steps": 5, "per_device_eval_batch_size": 4}
    options = {"arguments": evaluations, "embeddings": "training"}
    trainer = make(tmp_path, kind=Evaluated, embed=lambda rows: np.ones((len(rows), 3)), **options)
    with last_vectors() as kept:
        trainer.train()
    assert kept[0][:, 0].tolist() == [*range(ROWS)]


@pytest.mark.parametrize(("devices", "workers"), [(1, 2), (2, 0)])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_run_goes_on_in_its_epoch(devices, workers, share, tmp_path):
    stop = int(share * 2 * (12 if devices == 1 else 6))
    options = {"arguments": {"dataloader_num_workers": workers}}
    begun = run(train, devices, tmp_path, stop=stop, **options)
    went_on = run(train, devices, tmp_path, resume=True, **options)
    seen = [one[0][:stop] + other[0] for one, other in zip(begun, went_on, strict=True)]
    assert seen == epochs_of(tmp_path / "plans", devices, 2)


def test_a_resumed_epoch_needs_the_plan_that_it_began_with(tmp_path):
    train(tmp_path, stop=3)
    path = run_of(tmp_path / "plans") / "plan-0000.npz"
    plan = Plan.load(path)
    other = Plan(plan.rows[::-1].copy(), plan.batch_offsets, plan.metadata)
    other.save(path, force=True)
    with pytest.raises(InputError, match=r"plan: is another one than the checkpoint's, .* step 3"):
        train(tmp_path, resume=True)


def test_other_accumulated_steps_than_the_checkpoint_counts(tmp_path):
    """A trainer counts updates, so it would repeat steps that were trained, or skip some."""
    train(tmp_path, stop=2)
    train(tmp_path, resume=True, stop=4)
    with pytest.raises(InputError, match=r"is at epoch 0\.33, but .* goes on at 0\.67, as"):
        train(tmp_path, resume=True, arguments={"gradient_accumulation_steps": 2})


def test_plans_that_come_after_the_trainer(tmp_path):
    late = make(tmp_path, kind=Trainer, plans=False)
    late.add_callback(PlannedEpochs(late.train_dataset, embed(late.model)))
    with pytest.raises(InputError, match="let the trainer inherit from PlannedBatches"):
        late.train()
    late = make(tmp_path, plans=False)
    late.add_callback(PlannedEpochs(late.train_dataset, embed(late.model)))
    with pytest.raises(InputError, match=r"does not know them; pass callbacks=\[plans\]"):
        late.train()


def test_the_trainer_must_have_the_rows_of_the_plans(tmp_path):
    rows = Dataset.from_dict({"text": [str(row) for row in range(ROWS)], "label": [1] * ROWS})
    tokenised = rows.map(lambda row: {"text": f"query: {row['text']}", "rows": int(row["text"])})
    for number, (planned, trained) in enumerate(
        [(tokenised, tokenised.shuffle(seed=1)), (rows, rows.select(range(ROWS)[::-1]))]
    ):
        trainer = make(tmp_path / str(number))
        plans_in(trainer).dataset, trainer.train_dataset = planned, trained
        with pytest.raises(InputError, match=r"in another order \(column 'text'\)"):
            trainer.train()
    numbers = rows.map(lambda row: {"rows": int(row["text"])}, remove_columns=["text", "label"])
    order = np.random.default_rng(0).permutation(ROWS)
    check_same_rows(rows.select(order), numbers.select(order))
    check_same_rows(rows, numbers)
    with pytest.raises(InputError, match="shuffled, and has no column of the one that the plans"):
        check_same_rows(rows, numbers.select(order))
    known = rows.add_column("number", list(range(ROWS)))
    trainer = make(tmp_path / "rewritten")
    trainer.data_collator = lambda taken: {"rows": torch.tensor([row["number"] for row in taken])}
    plans_in(trainer).dataset = known
    trainer.train_dataset = known.map(lambda row: {"text": f"query: {row['text']}"})
    trainer.train()
    assert len(trainer.seen) == 2 * len(plans_in(trainer).sampler)


def test_who_forgets_a_line_is_told(tmp_path):
    with pytest.raises(InputError, match="let the trainer inherit from PlannedBatches"):
        make(tmp_path, kind=Trainer).train()
    with pytest.raises(InputError, match="got 0 PlannedEpochs, expected one; pass callbacks"):
        make(tmp_path, plans=False).train()
    trained = make(tmp_path)
    trained.train()
    trained.train()
    again = make(tmp_path, kind=Trainer, plans=False)
    again.add_callback(plans_in(trained))
    with pytest.raises(InputError, match="let the trainer inherit from PlannedBatches"):
        again.train()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 8}, "batch size: got 8 for the plan, but the training arguments say 4"),
        ({"world_size": 2}, "world size: got 2 for the plan, but the training arguments say 1"),
        ({"arguments": {"ignore_data_skip": True}}, "ignore_data_skip=True: would begin the plan"),
        ({"arguments": {"accelerator_config": {"split_batches": True}}}, "split_batches=True"),
        ({"arguments": {"train_sampling_strategy": "sequential"}}, "the plan decides the order"),
    ],
)
def test_refusals(options, says, tmp_path):
    with pytest.raises(InputError, match=says):
        make(tmp_path, **options)
    with pytest.raises(InputError, match="got generator, which has no length"):
        PlannedEpochs((row for row in range(9)), vectors)
