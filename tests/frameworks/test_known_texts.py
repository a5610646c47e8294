"""Known answers among the negatives that trainers really train on, counted by brute force."""

from __future__ import annotations

from collections import Counter
from itertools import chain, permutations

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses

from batchplan.training.sentence_transformers import PlannedEpochs

from .processes import run
from .texts import QUICKLY, load_model, save_model

WORDS = 60
NAMES = ("anchor", "positive", "negative")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, WORDS)
    return folder


def texts(seed, rows=46, columns=2):
    """Texts of one word; in and across the columns, several rows have the same one."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(np.unique(rng.integers(0, [[40, 40]], (3 * rows, 2)), axis=0))[:rows]
    data = {"anchor": [f"x{a}" for a in pairs[:, 0]]}
    data["positive"] = [f"x{p}" if p < 4 else f"y{p}" for p in pairs[:, 1]]
    if columns == 3:
        data["negative"] = [f"y{p}" for p in rng.integers(0, WORDS, rows)]
    return Dataset.from_dict(data)


class Recorder(SentenceTransformerTrainer):
    """Keeps the words of each step: a column each."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        sides = [inputs[f"{name}_input_ids"] for name in NAMES if f"{name}_input_ids" in inputs]
        self.seen.append(list(zip(*(side.max(1).values.tolist() for side in sides), strict=True)))
        return super().training_step(model, inputs, num_items_in_batch)


def train(folder, model_folder, *, sets, epochs=2, gather=False, vectors=None, **options):
    """The words of each step of this process."""
    model = load_model(model_folder)
    loss = losses.MultipleNegativesRankingLoss(model, gather_across_devices=gather)
    embedded, encode = [], model.encode
    model.encode = lambda texts, **how: embedded.append(len(texts)) or encode(texts, **how)
    plans = PlannedEpochs(sets, loss, folder=folder / "plans", **options)
    settings = {**QUICKLY, "num_train_epochs": epochs, "batch_sampler": plans}
    trainer = Recorder(
        model, SentenceTransformerTrainingArguments(str(folder / "run"), **settings),
        train_dataset=sets if isinstance(sets, Dataset) else DatasetDict(sets), loss=loss,
        callbacks=[plans],
    )  # fmt: skip
    trainer.seen = []
    trainer.train()
    return trainer.seen, embedded


def collisions(steps, data, tokens):
    """The ordered pairs of rows of a step in which a document of the second is a known answer."""
    words = [[tokens[text] for text in data[name]] for name in data.column_names]
    known = {*zip(words[0], words[1], strict=True), *((word, word) for word in words[0])}
    return sum(
        (own[0], document) in known
        for step in steps
        for own, other in permutations(step, 2)
        for document in other[1:]
    )


def rows_of(data, tokens):
    return Counter(
        zip(*([tokens[text] for text in data[name]] for name in data.column_names), strict=True)
    )


@pytest.fixture(scope="module")
def tokens(saved):
    return load_model(saved).tokenizer.get_vocab()


CASES = [
    (1, {"planner": "random", "guard": True}),
    (1, {"planner": "random", "guard": True, "embeddings": "fresh"}),
    (1, {"planner": "shuffled", "epochs": 2}),
    (1, {}),
    (1, {"epochs": 1}),
    (1, {"epochs": 1, "texts": 1}),  # a random row has an answer of the planned rest
    (1, {"random_epochs": 0, "embeddings": "fresh", "mega_batches": 1}),
    (1, {"random_epochs": 0, "embeddings": "fresh", "mega_batches": 3}),
    (1, {"planned_epochs": 1, "random_epochs": 0, "columns": 3}),
    (1, {"planner": "random", "columns": 3}),
    (1, {"planner": "gcbs"}),
    (1, {"planner": "gcbs", "columns": 3}),  # which plans pairs, and knows the texts of negatives
    (1, {"planner": "chain", "random_epochs": 0}),
    (1, {"tail": "pad"}),
    (2, {"planner": "random", "guard": True}),
    (2, {"ahead": 0.4}),
    (2, {"gather": True, "tail": "drop"}),
    (2, {"planner": "random", "gather": True, "tail": "drop"}),
]


@pytest.mark.parametrize(("devices", "options"), CASES)
def test_no_step_has_a_known_answer_as_a_negative(devices, options, tmp_path, saved, tokens):
    options = {"epochs": 2, **options}
    columns, gather = options.pop("columns", 2), options.get("gather", False)
    data = texts(options.pop("texts", 5), columns=columns)
    got = run(train, devices, tmp_path, saved, sets=data, **options)
    epochs, steps = options["epochs"], [seen for seen, _ in got]
    together = (
        [list(chain(*own)) for own in zip(*steps, strict=True)] if gather else [*chain(*steps)]
    )
    assert collisions(together, data, tokens) == 0
    trained, once = Counter(chain(*together)), rows_of(data, tokens)
    if "tail" not in options:
        assert trained == Counter({row: count * epochs for row, count in once.items()})
    if options.get("planner") in ("random", "shuffled"):
        assert all(not embedded for _, embedded in got)


def test_random_batches_without_a_guard_have_some(tmp_path, saved, tokens):
    data = texts(5)
    seen, _ = train(tmp_path, saved, sets=data, planner="random", guard=False)
    assert collisions(seen, data, tokens) > 0


def test_several_data_sets(tmp_path, saved, tokens):
    sets = {"first": texts(1), "second": texts(2, rows=24)}
    seen, _ = train(tmp_path, saved, sets=sets, planner="random", guard=True)
    rows = {name: rows_of(data, tokens) for name, data in sets.items()}
    for name, data in sets.items():
        own = [step for step in seen if all(row in rows[name] for row in step)]
        assert len(own) >= 2 * len(data) // 4
        assert collisions(own, data, tokens) == 0
