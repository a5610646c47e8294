"""Rows with mined negatives in a SentenceTransformerTrainer: planned by all their texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses

from batchplan import Plan
from batchplan.data import Embeddings
from batchplan.training.sentence_transformers import PlannedEpochs

from .processes import run
from .shown import epochs_of, last_vectors, run_of
from .texts import FRESH, QUICKLY, ROWS, load_model, rows_of, save_model

COLUMNS = {"anchor": "x", "positive": "y", "negative_1": "n", "negative_2": "m"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, sides=[*COLUMNS.values()])
    return folder


class Recorder(SentenceTransformerTrainer):
    """Keeps the rows that each step trains on."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        sides = [rows_of(inputs[f"{name}_input_ids"]) for name in COLUMNS]
        assert all(side == sides[0] for side in sides)
        self.seen.append(sides[0])
        return super().training_step(model, inputs, num_items_in_batch)


def train(folder, model_folder, *, loss="MultipleNegativesRankingLoss", planner="partition",
          gather=False, **options):  # fmt: skip
    """The rows of each step, what the last plan was made from, and what the model says of it."""
    model = load_model(model_folder)
    texts = {name: [f"{side}{row}" for row in range(ROWS)] for name, side in COLUMNS.items()}
    dataset = Dataset.from_dict(texts)
    loss = getattr(losses, loss)(model, gather_across_devices=gather)
    options = {**FRESH, **options}
    plans = PlannedEpochs(dataset, loss, planner, folder=folder / "plans", **options)
    settings = {**QUICKLY, "learning_rate": 0.0, "batch_sampler": plans}
    arguments = SentenceTransformerTrainingArguments(str(folder / "run"), **settings)
    trainer = Recorder(model, arguments, dataset, loss=loss, callbacks=[plans])
    trainer.seen = []
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with last_vectors() as kept:
        trainer.train()
    return (
        trainer.seen,
        [np.array(side) for side in kept],
        [model.encode(texts[name]) for name in COLUMNS],
    )


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (1, {}),
        (1, {"loss": "CachedMultipleNegativesRankingLoss", "embeddings": "training"}),
        (2, {}),
        (2, {"embeddings": "training"}),
        (2, {"gather": True, "tail": "drop"}),
    ],
)
def test_every_step_sees_the_plan_of_all_texts(devices, options, tmp_path, saved):
    results = run(train, devices, tmp_path, saved, **options)
    assert [seen for seen, *_ in results] == epochs_of(tmp_path / "plans", devices, 2)
    _, kept, vectors = results[0]
    assert len(kept) == 4
    for side, expected in zip(kept, vectors, strict=True):  # the model did not learn
        unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (side, expected)]
        np.testing.assert_allclose(*unit, atol=2e-3)
    x, y, *negatives = kept
    last = Plan.load(run_of(tmp_path / "plans") / "plan-0001.npz").metadata
    assert last.fingerprint == Embeddings.from_arrays(x, y, negatives=negatives).fingerprint


def test_planners_of_pairs_look_at_pairs(tmp_path, saved):
    seen, kept, _ = train(tmp_path, saved, planner="knn")
    assert [seen] == epochs_of(tmp_path / "plans", 1, 2)
    last = Plan.load(run_of(tmp_path / "plans") / "plan-0001.npz").metadata
    assert len(kept) == 2
    assert last.fingerprint == Embeddings.from_arrays(*kept).fingerprint
