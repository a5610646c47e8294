"""Planned epochs in a SentenceTransformerTrainer, seen at the training step."""

from __future__ import annotations

import gc
import warnings
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses

from batchplan import InputError, Plan
from batchplan.training import PlanBatchSampler
from batchplan.training.epochs import process_place
from batchplan.training.sentence_transformers import PlannedEpochs, loss_settings
from batchplan.training.text_encoding import BatchSize

from .processes import FailedError, run
from .shown import epochs_of, last_vectors, plan_of
from .stopping import Interrupt, Stop
from .texts import FRESH, QUICKLY, ROWS, load_model, pairs, rows_of, save_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder)
    return folder


HARD = {"planner": "partition", "mega_batches": 1}
OFTEN = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}
EVALUATED = {"evaluated": "the training set", "arguments": OFTEN}


class Recorder(SentenceTransformerTrainer):
    """Keeps the rows that each step trains on."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        sides = [rows_of(inputs[f"{name}_input_ids"]) for name in ("anchor", "positive")]
        assert sides[0] == sides[1]
        self.seen.append(sides[0])
        return super().training_step(model, inputs, num_items_in_batch)


def make(
    folder, model_folder, *, loss="MultipleNegativesRankingLoss", gather=False, stop=None,
    arguments=None, dataset=None, evaluated=None, planner="random", usual=False, **options
):  # fmt: skip
    model = load_model(model_folder)
    dataset = pairs() if dataset is None else dataset
    if loss == "MatryoshkaLoss":
        inner = losses.MultipleNegativesRankingLoss(model)
        loss = losses.MatryoshkaLoss(model, inner, [16, 8], n_dims_per_step=1)
    else:
        loss = getattr(losses, loss)(model, gather_across_devices=gather)
    limit = {"max_score": 9} if planner == "random" else {}  # so that it depends on vectors
    options = {**FRESH, **limit, **options}
    plans = PlannedEpochs(
        dataset, loss, planner, folder=None if usual else folder / "plans", **options
    )
    settings = {**QUICKLY, "learning_rate": 1e-2, "batch_sampler": plans, **(arguments or {})}
    trainer = Recorder(
        model,
        SentenceTransformerTrainingArguments(str(folder / "run"), **settings),
        train_dataset=dataset,
        eval_dataset=dataset if evaluated == "the training set" else dataset.select(range(20)),
        loss=loss,
        callbacks=[plans, *([Stop(stop)] if stop else [])],
    )
    trainer.seen = []
    return trainer


def plans_in(trainer):
    (plans,) = (one for one in trainer.callback_handler.callbacks if type(one) is PlannedEpochs)
    return plans


def train(folder, model_folder, resume=False, **options):
    trainer = make(folder, model_folder, **options)
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer.seen, trainer.state.global_step


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (1, {}),
        (1, {"arguments": {"dataloader_num_workers": 2}}),
        (1, {"loss": "CachedMultipleNegativesRankingLoss"}),
        (1, {"planner": "osgd", "num_batches": 5}),
        (2, {"planner": "hardneg", "as_batches": True}),
        (2, {"planner": "partition"}),
        (2, {"loss": "CachedMultipleNegativesRankingLoss"}),
        (1, {"planner": "rwr", "coverage": "independent", "candidate_rows": 20, "neighbors": 5}),
        (2, {"arguments": {"dataloader_num_workers": 2, "gradient_accumulation_steps": 2}}),
        (2, {"gather": True, "tail": "pad"}),
        (2, {"loss": "CachedMultipleNegativesRankingLoss", "gather": True, "tail": "drop"}),
        (4, {"arguments": {"eval_strategy": "epoch"}}),
        *((devices, EVALUATED) for devices in (1, 2)),
        (1, {**EVALUATED, "arguments": {**OFTEN, "per_device_eval_batch_size": 8}}),
        (
            1,
            {
                **EVALUATED,
                "arguments": {**OFTEN, "dataloader_num_workers": 2, "eval_on_start": True},
            },
        ),
    ],
)
def test_every_step_sees_the_rows_of_its_plan(devices, options, tmp_path, saved):
    results = run(train, devices, tmp_path, saved, **options)
    expected = epochs_of(tmp_path / "plans", devices, 2)
    assert [seen for seen, _ in results] == expected
    accumulated = options.get("arguments", {}).get("gradient_accumulation_steps", 1)
    steps = len(expected[0]) // 2
    assert [step for _, step in results] == [2 * -(-steps // accumulated)] * devices
    first, second = (Plan.load(path).metadata for path in plans_of(tmp_path))
    assert first.fingerprint != second.fingerprint  # of the model as it is then
    assert first.scope == ("global" if options.get("gather") else "device")


def train_in_an_order_of_its_own(folder, model_folder):
    train(folder, model_folder, dataset=pairs().shuffle(seed=process_place()[0]))


def test_processes_with_rows_in_different_orders(tmp_path, saved):
    with pytest.raises(FailedError, match="data set: rank 1 has another one than rank 0"):
        run(train_in_an_order_of_its_own, 2, tmp_path, saved)


@pytest.mark.parametrize(
    ("devices", "loss", "arguments"),
    [
        (1, "MultipleNegativesRankingLoss", {"gradient_accumulation_steps": 2}),
        (1, "CachedMultipleNegativesRankingLoss", {"dataloader_num_workers": 2}),
        (1, "MatryoshkaLoss", {}),
        (2, "CachedMultipleNegativesRankingLoss", OFTEN),
        (4, "MatryoshkaLoss", {}),
    ],
)
def test_vectors_of_the_training(devices, loss, arguments, tmp_path, saved):
    options = {"arguments": {"learning_rate": 0.0, **arguments}, "embeddings": "training", **HARD}
    results = run(train_on_vectors, devices, tmp_path, saved, loss=loss, **options)
    assert [seen for seen, *_ in results] == epochs_of(tmp_path / "plans", devices, 2)
    _, sides, fresh, _ = results[0]
    for side, expected in zip(sides, fresh, strict=True):  # the model did not learn
        unit = side / np.linalg.norm(side.astype(np.float32), axis=1, keepdims=True)
        np.testing.assert_allclose(unit, expected, atol=2e-3)
    assert {tuple(calls) for *_, calls in results} == {(-(-ROWS // devices),)}  # in the first epoch


def train_on_vectors(folder, model_folder, **options):
    """The rows of each step, the vectors of the last plan, those of the model, and how many rows
    each call embedded."""
    trainer = make(folder, model_folder, **options)
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    plans, calls = plans_in(trainer), []
    embed = plans._embed

    def counted(rows, *of):
        calls.append(len(rows))
        return embed(rows, *of)

    plans._embed = counted
    with last_vectors() as kept:
        trainer.train()
    return trainer.seen, kept, embed(np.arange(ROWS)), calls


def test_evaluations_and_predictions_outside_of_the_training(tmp_path, saved):
    """They neither plan, nor take the batches of a plan."""
    trainer = make(tmp_path, saved, evaluated="the training set", arguments=OFTEN)
    for work in (trainer.evaluate, lambda: trainer.predict(trainer.train_dataset)):
        work()
        assert plans_of(tmp_path) == []
    trainer.train()
    assert trainer.seen == epochs_of(tmp_path / "plans", 1, 2)[0]
    kept = {path: path.stat().st_mtime_ns for path in plans_of(tmp_path)}
    trainer.evaluate()
    trainer.predict(trainer.train_dataset)
    assert {path: path.stat().st_mtime_ns for path in plans_of(tmp_path)} == kept


@pytest.mark.parametrize("devices", [1, 2])
def test_several_data_sets_are_trained_as_planned(devices, tmp_path, saved):
    """What replaces round-robin: every batch of both epochs but the rows left over is of one."""
    sources = ["a"] * 24 + ["b"] * (ROWS - 24)
    table = tmp_path / "sources.parquet"
    Dataset.from_dict({"source": sources}).to_parquet(table)
    options = {"source_column": "source", "label_table": str(table), **HARD}
    results = run(train, devices, tmp_path, saved, **options)
    seen = [rows for rows, _ in results]
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    batches = [batch for rows in seen for batch in rows]
    assert sum(len({sources[row] for row in batch}) > 1 for batch in batches) <= 2 * devices
    assert {row for batch in batches for row in batch} == set(range(ROWS))


@pytest.mark.parametrize("devices", [1, 2])
def test_epochs_after_the_planned_ones_are_random(devices, tmp_path, saved):
    results = run(train, devices, tmp_path, saved, planner="partition", planned_epochs=1)
    assert [seen for seen, _ in results] == epochs_of(tmp_path / "plans", devices, 2)
    planners = [Plan.load(path).metadata.planner for path in plans_of(tmp_path)]
    assert planners == ["partition", "random"]


@pytest.mark.parametrize(
    ("devices", "more"), [(1, {}), (2, {"ahead": 0.4}), (2, {"gather": True, "tail": "drop"})]
)
def test_a_plan_follows_a_random_epoch(devices, more, tmp_path, saved):
    options = {"planner": "partition", "embeddings": "training", "random_epochs": 1, **more}
    results = run(train, devices, tmp_path, saved, **options)
    assert [seen for seen, _ in results] == epochs_of(tmp_path / "plans", devices, 2)
    planners = [Plan.load(path).metadata.planner for path in plans_of(tmp_path)]
    assert planners == ["random", "partition"]


@pytest.mark.parametrize(
    ("planner", "epochs", "expected"),
    [
        ("partition", {"num_train_epochs": 3}, ["random", "partition", "partition"]),
        ("partition", {"max_steps": 24}, ["random", "partition"]),
        ("partition", {"max_steps": 18}, ["random", "partition"]),
        ("partition", {"num_train_epochs": 1}, ["random"]),
        ("rwr", {}, ["rwr", "rwr"]),  # its batches are samples
    ],
)
def test_by_default_the_first_of_several_epochs_is_random(
    planner, epochs, expected, tmp_path, saved, monkeypatch
):
    monkeypatch.setattr(f"{__name__}.FRESH", {})
    options = {"restart": "0.2:0.05"} if planner == "rwr" else {}
    trainer = make(tmp_path, saved, planner=planner, arguments=epochs, **options)
    embedded = []
    encode = trainer.model.encode
    monkeypatch.setattr(
        trainer.model, "encode", lambda texts, **how: embedded.append(texts) or encode(texts, **how)
    )
    trainer.train()
    folder = plans_of(tmp_path)[0].parent
    plans = [Plan.load(path) for path in plans_of(tmp_path)]
    assert [plan.metadata.planner for plan in plans] == expected
    plans = [Plan.load(plan_of(folder, epoch)) for epoch in range(len(plans))]
    if planner == "rwr":  # its schedule ends with the last epoch that the arguments ask for
        assert [plan.metadata.metrics["restart"] for plan in plans] == pytest.approx([0.2, 0.05])
    rows = [row for plan in plans for batch in plan for row in batch.tolist()]
    seen = [row for step in trainer.seen for row in step]
    assert seen == rows[: len(seen)]
    assert bool(embedded) == (expected[0] != "random")


@pytest.mark.parametrize(("devices", "workers"), [(1, 2), (2, 0)])
@pytest.mark.parametrize("stop", [3, 16])
def test_a_run_goes_on_in_its_epoch(devices, workers, stop, tmp_path, saved):
    options = {"arguments": {"dataloader_num_workers": workers, "per_device_train_batch_size": 2}}
    begun = run(train, devices, tmp_path, saved, stop=stop, **options)
    kept = {path.name: path.read_bytes() for path in plans_of(tmp_path)}
    went_on = run(train, devices, tmp_path, saved, resume=True, **options)
    seen = [one[0][:stop] + other[0] for one, other in zip(begun, went_on, strict=True)]
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    assert kept.items() <= {path.name: path.read_bytes() for path in plans_of(tmp_path)}.items()


def plans_of(folder):
    return sorted((folder / "plans").glob("**/plan-*.npz"))


def test_a_resumed_epoch_needs_its_own_plan(tmp_path, saved):
    train(tmp_path, saved, stop=3)
    (path,) = plans_of(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="does not exist, but training goes on in the middle"):
        train(tmp_path, saved, resume=True)


def runs_in(folder):
    return {path.name for path in folder.iterdir()}


def test_each_run_has_a_folder_of_its_own(tmp_path, saved):
    """Also a run after one that was interrupted, and two at once in one output folder."""
    trainer = make(tmp_path, saved, stop=3)
    others = make(tmp_path, saved)
    trainer.train()
    (first,) = runs_in(tmp_path / "plans")
    trainer.add_callback(Interrupt(2))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.remove_callback(Interrupt)
    trainer.remove_callback(Stop)
    trainer.seen.clear()
    interrupted = runs_in(tmp_path / "plans")
    assert len(interrupted) == 2
    trainer.train()
    (last,) = runs_in(tmp_path / "plans") - interrupted
    assert trainer.seen == epochs_of(tmp_path / "plans" / last, 1, 2)[0]
    others.train()
    assert len(runs_in(tmp_path / "plans")) == 4
    others.seen.clear()
    others.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert others.seen == epochs_of(tmp_path / "plans" / first, 1, 2)[0][3:]
    assert len(runs_in(tmp_path / "plans")) == 4


@pytest.mark.parametrize("devices", [1, 2])
def test_the_plans_are_in_the_output_of_the_trainer(devices, tmp_path, saved):
    """A run that resumes finds them, also if the folder was moved after a kill."""
    begun = run(train, devices, tmp_path / "a", saved, stop=3, usual=True)
    (tmp_path / "a").rename(tmp_path / "b")
    options = {"resume": True, "usual": True, "planner": "osgd", "num_batches": 6}
    with pytest.raises(FailedError, match="of another run, whose planner is 'random'"):
        run(train, devices, tmp_path / "b", saved, **options)
    went_on = run(train, devices, tmp_path / "b", saved, resume=True, usual=True)
    seen = [one[0] + other[0] for one, other in zip(begun, went_on, strict=True)]
    assert seen == epochs_of(tmp_path / "b" / "run" / "_plans", devices, 2)


def test_a_run_resumes_with_its_own_texts(tmp_path, saved):
    train(tmp_path, saved, stop=3)
    texts = pairs().to_dict()
    other = Dataset.from_dict({**texts, "anchor": texts["anchor"][::-1]})
    with pytest.raises(InputError, match="holds the plans of another run, whose data is"):
        train(tmp_path, saved, resume=True, dataset=other)


@pytest.mark.parametrize("fails", [None, "in a step", "between two steps"])
def test_a_model_keeps_nothing_of_its_training(fails, tmp_path, saved):
    """Neither of the training nor of the 500 steps of a later one, of the user's own."""
    trainer, outputs = make(tmp_path, saved, embeddings="training"), []
    model = trainer.model

    def fail(*_others, **_named):
        if len(outputs) > 12:
            raise KeyboardInterrupt

    handle = model[-1].register_forward_hook(
        lambda *of: outputs.append(weakref.ref(of[2]["sentence_embedding"]))
    )
    if fails == "in a step":
        trainer.loss.register_forward_hook(fail)
    elif fails:
        plans_in(trainer).on_log = plans_in(trainer).on_epoch_end = fail
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        trainer.train()
    tokens = model.tokenize(["x1 x2"] * 8)
    for _ in range(500):
        model(dict(tokens))["sentence_embedding"].sum().backward()
    handle.remove()
    gc.collect()
    assert len(outputs) > 512
    assert [output for output in outputs if output() is not None] == []
    assert len(model[-1]._forward_hooks) == (fails == "between two steps")
    assert not plans_in(trainer).plans._vectors._steps.take() or fails


def test_equal_texts_never_meet(tmp_path, saved, monkeypatch):
    """Half of the rows have the text of another one, whose vector may differ in its last bits."""
    words = [f"x{row}" for row in range(ROWS)]
    words[1::2] = words[:-1:2]
    texts = pairs().remove_columns("anchor").add_column("anchor", words)
    texts = texts.select_columns(["anchor", "positive"])
    encode = load_model(saved).encode
    noise = np.random.default_rng(0)

    def inexact(model, texts, **options):
        vectors = encode(texts, **options)
        return vectors * (1 + 0.01 * noise.standard_normal(vectors.shape))

    monkeypatch.setattr(SentenceTransformer, "encode", inexact)
    meet = []
    for name, guard in (("guarded", True), ("not", False)):
        trainer = make(tmp_path / name, saved, dataset=texts, guard=guard, **HARD)
        plan = plans_in(trainer).plans.for_epoch(0)
        meet.append(sum(len(batch) - len({words[r] for r in batch}) for batch in plan.batches()))
    assert meet[0] == 0 < meet[1]


def test_a_text_never_meets_itself_in_the_other_column(tmp_path, saved):
    """Row r + 1 asks what row r answers, in pairs of rows."""
    texts = pairs().to_dict()
    texts["anchor"][1::2] = texts["positive"][:-1:2]
    sources = tmp_path / "sources.parquet"
    Dataset.from_dict({"source": ["a"] * 24 + ["b"] * (ROWS - 24)}).to_parquet(sources)
    meet = []
    for number, options in enumerate(
        (
            HARD,
            {"source_column": "source", "label_table": str(sources), **HARD},
            {"planner": "random"},
            {"planner": "knn"},  # which has no guard
        )
    ):
        dataset = Dataset.from_dict(texts)
        trainer = make(tmp_path / str(number), saved, dataset=dataset, **options)
        plan = plans_in(trainer).plans.for_epoch(0)
        meet.append(sum(crossings(batch.tolist(), **texts) for batch in plan.batches()))
    assert meet[:3] == [0, 0, 0]
    assert meet[3] > 0


def crossings(rows, anchor, positive):
    return len({anchor[row] for row in rows} & {positive[row] for row in rows})


def test_several_data_sets_in_one(tmp_path, saved):
    sources = ["a"] * 24 + ["b"] * (ROWS - 24)
    table = tmp_path / "sources.parquet"
    pairs().add_column("source", sources).select_columns("source").to_parquet(table)
    options = {"source_column": "source", "label_table": str(table), **HARD}
    trainer = make(tmp_path, saved, **options)
    plan = plans_in(trainer).plans.for_epoch(0)
    mixed = sum(len({sources[row] for row in batch}) > 1 for batch in plan.batches())
    assert mixed <= 1  # the rows that fill no batch of their source


def test_a_table_of_other_rows_is_refused(tmp_path, saved):
    table = tmp_path / "sources.parquet"
    Dataset.from_dict({"source": ["a"]}).to_parquet(table)
    trainer = make(tmp_path, saved, source_column="source", label_table=str(table), **HARD)
    with pytest.raises(InputError, match="has 1 rows, expected 47, one for each row of the data"):
        plans_in(trainer).plans.for_epoch(0)


def test_embeds_with_the_prompts_of_the_training(tmp_path, saved, monkeypatch):
    asked = []

    def encode(model, texts, *, prompt, **options):
        asked.append((prompt, len(texts), options.get("normalize_embeddings")))
        return np.random.default_rng(0).standard_normal((len(texts), 4), np.float32)

    trainer = make(tmp_path, saved, arguments={"prompts": {"anchor": "ask: "}})
    monkeypatch.setattr(type(trainer.model), "encode", encode)
    plans_in(trainer).plans.for_epoch(0)
    assert asked == [("ask: ", ROWS, True), ("", ROWS, True)]


def test_the_embeddings_are_those_of_the_model(tmp_path, saved):
    trainer = make(tmp_path, saved)
    plans_in(trainer).plans.folder.mkdir()
    trainer.model.train()
    _, y = plans_in(trainer)._embed_rows(np.arange(ROWS))
    assert trainer.model.training
    usual = trainer.model.encode(pairs()["positive"], normalize_embeddings=True)
    np.testing.assert_allclose(y, usual, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 8}, "batch size: got 8 for the plan, but the training arguments say 4"),
        ({"world_size": 2}, "world size: got 2 for the plan, but the training arguments say 1"),
        ({"temperature": 0.1, **HARD}, "temperature: got 0.1 for the plan, but the loss has 0.05"),
        ({"similarity": "dot"}, "similarity: got dot for the plan, but the loss has cosine"),
        ({"arguments": {"ignore_data_skip": True}}, "ignore_data_skip=True: would begin the plan"),
        ({"arguments": {"accelerator_config": {"split_batches": True}}}, "split_batches=True"),
        ({"arguments": {"accelerator_config": {"dispatch_batches": True}}}, "dispatch_batches=Tr"),
        ({"arguments": {"auto_find_batch_size": True}}, "auto_find_batch_size=True: would change"),
        ({"arguments": {"batch_sampler": "no_duplicates"}}, "pass batch_sampler=plans"),
        ({"dataset": pairs().to_iterable_dataset()}, "has no length and no rows by number"),
    ],
)
def test_refusals(options, says, tmp_path, saved):
    with pytest.raises((InputError, AttributeError), match=says):
        make(tmp_path, saved, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gather": True}, "fall into unequal parts for 2 devices, which gather_across_devices"),
        ({"gather": True, "scope": "device"}, "scope: got device for the plan, but the loss has g"),
        ({"scope": "global"}, "scope: got global for the plan, but the loss has device"),
    ],
)
def test_refusals_of_several_devices(options, says, tmp_path, saved):
    with pytest.raises(FailedError, match=says):
        run(train, 2, tmp_path, saved, **options)


def test_who_forgets_a_line_is_told(tmp_path, saved):
    trainer = make(tmp_path, saved)
    plans = plans_in(trainer)
    trainer.remove_callback(plans)
    forgot = PlannedEpochs(pairs(), trainer.loss)
    with pytest.raises(InputError, match="the trainer does not know them; pass callbacks="):
        forgot(forgot.dataset, 4)
    other = make(tmp_path, saved)
    other.train_dataset = pairs(ROWS - 1)
    with pytest.raises(InputError, match="the trainer trains on another one than the plans got"):
        other.train()
    several = make(tmp_path, saved)
    for others, kind, says in (
        ({"b": pairs(ROWS - 1)}, InputError, "the same dictionary of several"),
        ({}, AttributeError, "several data sets: pass PlannedEpochs the same dictionary"),
    ):
        several.train_dataset = DatasetDict(a=plans_in(several).dataset, **others)
        with pytest.raises(kind, match=says):
            several.train()


def test_the_failure_of_the_first_process_reaches_the_others(tmp_path, saved):
    failures = run(fail, 2, tmp_path, saved)
    assert "MemoryError: too many texts" in failures[0]
    assert "the process of rank 0 failed with MemoryError: too many texts" in failures[1]


def fail(folder, model_folder):
    trainer = make(folder, model_folder)
    plans = plans_in(trainer)

    def embed(rows, *_of):
        if plans.plans.rank == 0:
            raise MemoryError("too many texts")
        return np.ones((len(rows), 4))

    plans._embed = embed
    try:
        trainer.train()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def made_before(folder, model_folder, plan, **arguments):
    """A trainer on a plan that is there already: the call that everybody tries first."""
    dataset, model = pairs(), load_model(model_folder)
    trainer = Recorder(
        model,
        SentenceTransformerTrainingArguments(
            str(folder), per_device_train_batch_size=4, num_train_epochs=1, batch_sampler=plan,
            use_cpu=True, report_to="none", disable_tqdm=True, **{"save_steps": 5, **arguments},
        ),
        train_dataset=dataset,
        eval_dataset=dataset.select(range(20)),
        loss=losses.MultipleNegativesRankingLoss(model),
    )  # fmt: skip
    trainer.seen = []
    return trainer


def test_a_plan_of_before_as_batch_sampler(tmp_path, saved):
    plan = PlanBatchSampler(random_plan(), batch_size=4)
    trainer = made_before(tmp_path, saved, plan, **OFTEN)
    trainer.train()
    assert trainer.seen == [batch.tolist() for batch in random_plan().batches()]
    dataset = pairs()
    with pytest.warns(UserWarning, match="data set: was selected, sorted or shuffled"):
        plan(dataset.shuffle(seed=0), 4)
    with warnings.catch_warnings(action="error"):
        plan(dataset.shuffle(seed=0).flatten_indices(), 4)


def test_a_resumed_epoch_needs_the_plan_of_before(tmp_path, saved):
    made_before(tmp_path, saved, PlanBatchSampler(random_plan())).train()
    checkpoint = str(tmp_path / "checkpoint-5")
    for seed, accumulated, says in (
        (1, 1, "plan: is another one than the checkpoint's, which is at step 5 of its epoch"),
        (0, 2, r"is at epoch 0\.42, but .* goes on at 0\.83, as"),
    ):
        plan = PlanBatchSampler(random_plan(seed))
        trainer = made_before(tmp_path, saved, plan, gradient_accumulation_steps=accumulated)
        with pytest.raises(InputError, match=says):
            trainer.train(resume_from_checkpoint=checkpoint)
    trainer = made_before(tmp_path, saved, PlanBatchSampler(random_plan()))
    dataset = trainer.train_dataset
    trainer.train_dataset = dataset.shuffle(seed=0).flatten_indices()
    with pytest.raises(InputError, match="data: is another one than the checkpoint's"):
        trainer.train(resume_from_checkpoint=checkpoint)
    trainer.train_dataset = dataset
    trainer.train(resume_from_checkpoint=checkpoint)
    assert trainer.seen == [batch.tolist() for batch in random_plan().batches()][5:]


def random_plan(seed=0):
    from batchplan.plans import Batching

    order = np.random.default_rng(seed).permutation(ROWS)
    return Plan.cut(order, Batching(4), num_rows=ROWS)


def test_settings_of_losses(saved):
    model = load_model(saved)
    inner = losses.MultipleNegativesRankingLoss(model, scale=50.0)
    expected = {"temperature": 0.02, "scope": "device", "similarity": "cosine"}
    around = losses.MatryoshkaLoss(model, inner, [16, 8])
    guided = losses.GISTEmbedLoss(model, model, temperature=0.1)
    assert loss_settings(inner) == expected
    assert loss_settings(around) == expected
    assert loss_settings(guided)["temperature"] == 0.1
    assert loss_settings(losses.SoftmaxLoss) == {}


def test_batches_of_texts_grow_until_memory_says_no():
    tried = []

    def work(size):
        tried.append(size)
        if size > 500:
            raise torch.cuda.OutOfMemoryError
        return size

    sizes = BatchSize(128, 4096)
    assert [sizes.fitted(work) for _ in range(5)] == [128, 256, 256, 256, 256]
    assert tried == [128, 256, 512, 256, 256, 256]
    assert [BatchSize(64, 64).fitted(lambda size: size) for _ in range(3)] == [64] * 3
    assert BatchSize(1200, 1200).fitted(work) == 300


def test_a_text_that_memory_has_no_room_for():
    def work(size):
        raise torch.cuda.OutOfMemoryError

    with pytest.raises(torch.cuda.OutOfMemoryError):
        BatchSize(128, 128).fitted(work)
