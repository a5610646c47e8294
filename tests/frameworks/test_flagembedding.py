"""Planned epochs in a trainer of FlagEmbedding, seen at the training step."""

from __future__ import annotations

import json

import pytest
from FlagEmbedding.abc.finetune.embedder import (
    AbsEmbedderDataArguments,
    AbsEmbedderTrainingArguments,
)
from FlagEmbedding.abc.finetune.embedder.AbsDataset import (
    AbsEmbedderCollator,
    AbsEmbedderTrainDataset,
)
from FlagEmbedding.finetune.embedder.encoder_only.base.modeling import BiEncoderOnlyEmbedderModel
from FlagEmbedding.finetune.embedder.encoder_only.base.trainer import EncoderOnlyEmbedderTrainer
from transformers import AutoModel, AutoTokenizer

from batchplan.training.transformers import PlannedBatches, PlannedEpochs

from .processes import run
from .shown import epochs_of
from .texts import ROWS, rows_of, save_model


class Recorder(PlannedBatches, EncoderOnlyEmbedderTrainer):
    """Keeps the rows that each step trains on."""

    seen = ()

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.seen = [*self.seen, rows_of(inputs["queries"]["input_ids"])]
        return super().training_step(model, inputs, num_items_in_batch)


def train(folder, gather):
    arguments = AbsEmbedderTrainingArguments(  # which starts torch.distributed
        str(folder / "run"), per_device_train_batch_size=4, num_train_epochs=2, use_cpu=True,
        learning_rate=1e-2, report_to="none", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = BiEncoderOnlyEmbedderModel(
        AutoModel.from_pretrained(folder / "model"),
        tokenizer=tokenizer,
        negatives_cross_device=gather,
    )
    data = AbsEmbedderDataArguments(
        train_data=[str(folder / "train.jsonl")], train_group_size=2, cache_path=str(folder)
    )
    dataset = AbsEmbedderTrainDataset(data, tokenizer)

    def embed(rows):
        texts = ([f"{side}{row}" for row in rows] for side in "xy")
        tokens = (tokenizer(side, return_tensors="pt", padding=True) for side in texts)
        return [model.encode(side) for side in tokens]

    options = {"scope": "global", "tail": "pad"} if gather else {}
    plans = PlannedEpochs(dataset, embed, folder=folder / "plans", **options)
    trainer = Recorder(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=AbsEmbedderCollator(tokenizer),
        tokenizer=tokenizer,
        callbacks=[plans],
    )
    trainer.train()
    return trainer.seen


@pytest.mark.parametrize(
    ("devices", "gather"), [(1, False), (2, False), (2, True), (4, False), (4, True)]
)
def test_every_step_sees_the_rows_of_its_plan(devices, gather, tmp_path):
    save_model(tmp_path / "model")
    rows = [
        {"query": f"x{row}", "pos": [f"y{row}"], "neg": [f"y{(row + 1) % ROWS}"]}
        for row in range(ROWS)
    ]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert run(train, devices, tmp_path, gather) == epochs_of(tmp_path / "plans", devices, 2)
