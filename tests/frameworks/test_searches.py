"""Models and data that a trainer makes or wraps: searches, `model_init`, compiled models."""

from __future__ import annotations

import pytest
import torch
from datasets import DatasetDict
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from batchplan import InputError
from batchplan.plans import Plan
from batchplan.training.sentence_transformers import PlannedEpochs

from .shown import epochs_of
from .test_sentence_transformers import Recorder
from .texts import QUICKLY, ROWS, load_model, pairs, save_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder)
    return folder


def make(folder, plans, loss, dataset=None, kind=Recorder, **options):
    settings = {**QUICKLY, "learning_rate": 1e-2, "batch_sampler": plans}
    arguments = SentenceTransformerTrainingArguments(str(folder / "run"), **settings)
    dataset = pairs() if dataset is None else dataset
    trainer = kind(
        args=arguments, train_dataset=dataset, loss=loss, callbacks=[plans],
        eval_dataset=pairs(20), **options,
    )  # fmt: skip
    trainer.seen = []
    return trainer


def counting(plans):
    """The number of rows of each call that embeds."""
    calls, embed = [], plans._embed

    def counted(rows, *of):
        calls.append(len(rows))
        return embed(rows, *of)

    plans._embed = counted
    return calls


def settings_of(plan):
    return [plan.metadata.options[name] for name in ("temperature", "similarity")]


@pytest.mark.parametrize("called", [True, False])
def test_a_model_of_the_trainer_is_recorded(called, tmp_path, saved):
    """No epoch embeds, and the loss decides the settings, if it is made from the model too."""
    loss = lambda model: MultipleNegativesRankingLoss(model, scale=10.0)  # noqa: E731
    loss = loss if called else loss(load_model(saved))
    plans = PlannedEpochs(pairs(), loss)
    trainer = make(tmp_path, plans, loss, model_init=lambda: load_model(saved))
    calls = counting(plans)
    trainer.train()
    assert calls == []
    assert trainer.seen == epochs_of(tmp_path / "run" / "_plans", 1, 2)[0]
    planned = Plan.load(next((tmp_path / "run" / "_plans").glob("*/plan-0001.npz")))
    assert settings_of(planned) == [0.1, "cosine"]


def test_a_search_plans_each_trial(tmp_path, saved):
    """Each has its own batch size."""
    pytest.importorskip("optuna")
    plans = PlannedEpochs(pairs(), MultipleNegativesRankingLoss)
    trainer = make(
        tmp_path, plans, MultipleNegativesRankingLoss, model_init=lambda: load_model(saved)
    )
    sizes = iter([4, 8, 4])
    trainer.hyperparameter_search(
        lambda trial: {
            "learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-2),
            "per_device_train_batch_size": next(sizes),
        },
        backend="optuna",
        n_trials=3,
    )
    runs = sorted((tmp_path / "run" / "_plans").iterdir(), key=lambda path: path.stat().st_ctime)
    expected = [step for own in runs for step in epochs_of(own, 1, 2)[0]]
    assert len(runs) == 3
    assert trainer.seen == expected
    assert {len(step) for step in trainer.seen} >= {4, 8}


def test_a_compiled_model(tmp_path, saved):
    model = load_model(saved)
    compiled = torch.compile(model, backend="eager")
    loss = MultipleNegativesRankingLoss(model)
    plans = PlannedEpochs(pairs(), loss)
    trainer = make(tmp_path, plans, loss, model=compiled)
    calls = counting(plans)
    trainer.train()
    assert calls == []
    assert trainer.seen == epochs_of(tmp_path / "run" / "_plans", 1, 2)[0]


@pytest.mark.parametrize("given", ["both", "trainer"])
def test_a_dictionary_of_one_data_set(given, tmp_path, saved):
    """As `load_dataset` returns it without ``split``."""
    sets = DatasetDict(train=pairs())
    model = load_model(saved)
    loss = MultipleNegativesRankingLoss(model)
    plans = PlannedEpochs(sets if given == "both" else sets["train"], loss)
    trainer = make(tmp_path, plans, loss, sets, model=model)
    calls = counting(plans)
    if given == "trainer":
        with pytest.raises(AttributeError, match="pass PlannedEpochs the same dictionary"):
            trainer.train()
        return
    trainer.train()
    assert calls == []
    (run,) = (tmp_path / "run" / "_plans").iterdir()
    assert trainer.seen == epochs_of(run / "0-train", 1, 2)[0]


def test_lists_of_negatives(tmp_path, saved):
    lists = [[f"x{row}", f"y{row}"] for row in range(ROWS)]
    dataset = pairs().add_column("negative", lists)
    model = load_model(saved)
    loss = MultipleNegativesRankingLoss(model)
    plans = PlannedEpochs(dataset, loss)
    with pytest.raises(InputError, match="'negative': has lists, expected texts; give each"):
        make(tmp_path, plans, loss, dataset, SentenceTransformerTrainer, model=model).train()
