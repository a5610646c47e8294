"""Known answers by the columns of a data set, in trainers that do not say which are the texts. The
vectors of equal texts differ, so that only the columns show them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import TrainingArguments

from batchplan.training import EpochPlans
from batchplan.training.accelerate import PlannedLoader
from batchplan.training.lightning import PlannedData
from batchplan.training.transformers import PlannedEpochs

from .test_lightning import fit
from .test_transformers import Model, Recorder

ROWS = 46


class Rows:
    """A data set with texts, whose items are the numbers of the rows."""

    def __init__(self, seed, names):
        rng = np.random.default_rng(seed)
        pairs = rng.permutation(np.unique(rng.integers(0, [[40, 40]], (140, 2)), axis=0))[:ROWS]
        sides = [pairs[:, 0], pairs[:, 1], rng.integers(0, 60, ROWS)]
        texts = {
            name: [f"t{own}" for own in side] for name, side in zip(names, sides, strict=False)
        }
        self.data = Dataset.from_dict(texts | {"input_ids": [[row] for row in range(ROWS)]})
        asked, *found = (list(self.data[name]) for name in names)
        # Texts of named columns are ids, of which an anchor's may be that of another document.
        itself = {(text, text) for text in asked} if names[0] == "anchor" else set()
        known = {*zip(asked, found[0], strict=True), *itself}
        self.apart = {
            (i, j)
            for i, j in permutations(range(ROWS), 2)
            if any((asked[i], own[j]) in known for own in found)
        }

    def collisions(self, steps):
        return sum(pair in self.apart for own in steps for pair in permutations(own, 2))


def embed(rows):
    vectors = np.random.default_rng(0).standard_normal((2, ROWS, 4)).astype(np.float32)
    return tuple(vectors[:, rows])


def collate(items):
    return torch.tensor([float(item["input_ids"][0]) for item in items])


TRIPLE = ["anchor", "positive", "negative"]
CASES = [
    (TRIPLE[:2], {"planner": "partition"}),
    (TRIPLE, {"planner": "random"}),
    (TRIPLE, {"planner": "gcbs", "random_epochs": 1}),
    (["query", "passage"], {"anchor_id": "query", "positive_id": "passage"}),
    (
        ["query", "answer", "wrong"],
        {
            "planner": "random",
            "anchor_id": "query",
            "positive_id": "answer",
            "negative_id": ["wrong"],
        },
    ),
]


@pytest.mark.parametrize(("names", "options"), CASES)
def test_transformers(names, options, tmp_path):
    rows = Rows(3, names)
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no", remove_unused_columns=False,
    )  # fmt: skip
    trainer = Recorder(
        Model(), arguments, train_dataset=rows.data,
        data_collator=lambda items: {"rows": collate(items)},
        callbacks=[PlannedEpochs(rows.data, embed, **options)],
    )  # fmt: skip
    trainer.train()
    assert len(trainer.seen) == 24
    assert rows.collisions(trainer.seen) == 0


def fitted(rows, folder, **options):
    loader = {"collate_fn": collate}
    return fit(
        PlannedData(rows.data, embed=embed, loader=loader, batch_size=4, **options), folder, 1
    )


@pytest.mark.parametrize(("names", "options"), CASES)
def test_lightning(names, options, tmp_path):
    rows = Rows(4, names)
    seen = fitted(rows, tmp_path, **options)
    assert len(seen) == 24
    assert rows.collisions(seen) == 0


def test_accelerate(tmp_path):
    """As the documentation says: with the columns in a file."""
    rows, table = Rows(5, ["query", "passage"]), str(tmp_path / "ids.parquet")
    rows.data.select_columns(["query", "passage"]).to_parquet(table)
    named = {"anchor_id": "query", "positive_id": "passage", "label_table": table}
    plans = EpochPlans(tmp_path / "plans", embed=embed, num_rows=ROWS, batch_size=4, **named)
    loader = PlannedLoader(Accelerator(cpu=True), rows.data, plans, collate_fn=collate)
    seen = [batch.int().tolist() for _ in range(2) for batch in loader]
    assert len(seen) == 24
    assert rows.collisions(seen) == 0


def test_groups_of_the_data_set(tmp_path):
    """Next to the texts, without a label table."""
    rows = Rows(6, TRIPLE[:2])
    topics = [row % 20 for row in range(ROWS)]
    rows.data = rows.data.add_column("topic", topics)
    seen = fitted(rows, tmp_path, group_column="topic")
    assert rows.collisions(seen) == 0
    assert all(len({topics[row] for row in step}) == len(step) for step in seen)
