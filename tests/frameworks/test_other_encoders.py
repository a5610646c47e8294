"""Trainers of sentence-transformers whose models give no single dense vector: refused in a sentence
by the adapter that embeds, and planned by that of transformers with vectors of another model."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    MultiVectorEncoder,
    MultiVectorEncoderTrainer,
    MultiVectorEncoderTrainingArguments,
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from sentence_transformers.cross_encoder import losses as cross_losses
from sentence_transformers.multi_vector_encoder import losses as multi_losses
from sentence_transformers.sparse_encoder import losses as sparse_losses
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
)

from batchplan import InputError
from batchplan.training import sentence_transformers, transformers
from batchplan.training.transformers import PlannedBatches

from .shown import epochs_of
from .texts import load_model, pairs, rows_of, save_model


def small(folder, kind, **options):
    """A BERT with another head, and the tokenizer of the texts."""
    save_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, **options,
    )  # fmt: skip
    kind(config).save_pretrained(folder)


def sparse(folder):
    small(folder, BertForMaskedLM)
    model = SparseEncoder(str(folder), device="cpu")
    loss = sparse_losses.SpladeLoss(
        model, sparse_losses.SparseMultipleNegativesRankingLoss(model), 1e-5, 1e-5
    )
    return model, loss, SparseEncoderTrainer, SparseEncoderTrainingArguments


def cross(folder):
    small(folder, BertForSequenceClassification, num_labels=1)
    model = CrossEncoder(str(folder), device="cpu", num_labels=1)
    loss = cross_losses.MultipleNegativesRankingLoss(model, num_negatives=2)
    return model, loss, CrossEncoderTrainer, CrossEncoderTrainingArguments


def multi(folder):
    save_model(folder)
    model = MultiVectorEncoder(str(folder), device="cpu")
    loss = multi_losses.MultiVectorMultipleNegativesRankingLoss(model)
    return model, loss, MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments


@pytest.mark.parametrize("make", [sparse, cross, multi])
def test_other_encoders(make, tmp_path):
    model, loss, trainer, arguments = make(tmp_path / "model")
    dataset = pairs()
    settings = {
        "num_train_epochs": 2, "per_device_train_batch_size": 4, "use_cpu": True,
        "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
    }  # fmt: skip
    plans = sentence_transformers.PlannedEpochs(tmp_path / "refused", dataset, loss, "random")
    with pytest.raises(InputError, match=rf"^model: got a {type(model).__name__}, .*docs/framewor"):
        trainer(
            model, arguments(str(tmp_path), batch_sampler=plans, **settings), dataset, loss=loss,
            callbacks=[plans],
        )  # fmt: skip
    save_model(tmp_path / "encoder")
    encoder = load_model(tmp_path / "encoder")

    class Recorder(PlannedBatches, trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            anchors = inputs.get("anchor_input_ids", inputs.get("anchor"))
            if isinstance(anchors, torch.Tensor):
                self.seen.append(rows_of(anchors))
            else:
                self.seen.append([int(text[1:]) for text in anchors])
            return super().training_step(model, inputs, num_items_in_batch)

    plans = transformers.PlannedEpochs(
        tmp_path / "plans", dataset,
        lambda _: [encoder.encode(dataset[side]) for side in ("anchor", "positive")],
    )  # fmt: skip
    arguments = arguments(str(tmp_path), remove_unused_columns=False, **settings)
    planned = Recorder(model, arguments, dataset, loss=loss, callbacks=[plans])
    planned.seen = []
    planned.train()
    assert planned.seen == epochs_of(tmp_path / "plans", 1, 2)[0]
