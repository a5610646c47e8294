"""Trainers of sentence-transformers whose models give no single dense vector: planned with another
encoder, or by the means of token vectors, or refused in a sentence."""

from __future__ import annotations

from functools import partial

import numpy as np
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

from batchplan import InputError, Plan
from batchplan.training import sentence_transformers, transformers
from batchplan.training.transformers import PlannedBatches

from .shown import epochs_of, run_of
from .texts import QUICKLY, ROWS, load_model, pairs, rows_of, save_model


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


def planned(make, folder, mixin=(), **options):
    """A trainer that keeps the rows of its steps, and what makes its other arguments."""
    model, loss, trainer, arguments = make(folder / "model")

    class Recorder(*mixin, trainer):
        seen = ()

        def training_step(self, model, inputs, num_items_in_batch=None):
            anchors = inputs.get("anchor_input_ids", inputs.get("anchor"))
            texts = not isinstance(anchors, torch.Tensor)
            rows = [int(text[1:]) for text in anchors] if texts else rows_of(anchors)
            self.seen = [*self.seen, rows]
            return super().training_step(model, inputs, num_items_in_batch)

    def start(plans, **more):
        own = arguments(str(folder), **{**QUICKLY, **more})
        trainer = Recorder(model, own, pairs(), loss=loss, callbacks=[plans])
        trainer.train()
        return trainer.seen

    return loss, start


def encoder_in(folder):
    save_model(folder)
    return load_model(folder)


@pytest.mark.parametrize("make", [sparse, multi])
def test_planned_with_another_encoder(make, tmp_path, monkeypatch):
    """Of a model whose vectors do not change, each row is embedded once."""
    encoder, calls = encoder_in(tmp_path / "encoder"), []
    encode = type(encoder).encode

    def counted(model, inputs, **options):
        calls.append(len(inputs))
        return encode(model, inputs, **options)

    monkeypatch.setattr(type(encoder), "encode", counted)
    loss, start = planned(make, tmp_path)
    options = {"encoder": encoder, "mega_batches": 1, "temperature": 0.02}
    plans = sentence_transformers.PlannedEpochs(pairs(), loss, folder=tmp_path / "plans", **options)
    assert start(plans, batch_sampler=plans) == epochs_of(tmp_path / "plans", 1, 2)[0]
    assert sum(calls) == 2 * ROWS
    folder = run_of(tmp_path / "plans")
    first, second = (Plan.load(folder / f"plan-000{n}.npz").metadata for n in (0, 1))
    assert first.fingerprint == second.fingerprint
    assert first.options["temperature"] == 0.02  # the loss has 1, of other vectors


@pytest.mark.parametrize("embeddings", ["fresh", "training"])
def test_means_of_token_vectors(embeddings, tmp_path):
    loss, start = planned(multi, tmp_path)
    plans = sentence_transformers.PlannedEpochs(
        pairs(),
        loss,
        folder=tmp_path / "plans",
        embeddings=embeddings,
        mega_batches=1,
        random_epochs=0,
    )
    assert start(plans, batch_sampler=plans) == epochs_of(tmp_path / "plans", 1, 2)[0]
    folder = run_of(tmp_path / "plans")
    first, second = (Plan.load(folder / f"plan-000{n}.npz").metadata for n in (0, 1))
    assert first.fingerprint != second.fingerprint
    x, y = plans._vectors(np.arange(ROWS))
    for encode, side, got in (("encode_query", "anchor", x), ("encode_document", "positive", y)):
        tokens = getattr(plans._model, encode)(pairs()[side])
        np.testing.assert_allclose(got, np.stack([own.mean(0) for own in tokens]), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (sparse, "model: got a SparseEncoder, which has no dense vectors to plan with; pass enco"),
        (cross, "model: got a CrossEncoder, which has no dense vectors to plan with; pass enco"),
    ],
)
def test_refusals(make, says, tmp_path):
    loss, start = planned(make, tmp_path)
    plans = sentence_transformers.PlannedEpochs(
        pairs(), loss, "random", folder=tmp_path / "refused"
    )
    with pytest.raises(InputError, match=f"^{says}"):
        start(plans, batch_sampler=plans)
    assert not (tmp_path / "refused").exists()


def test_encoders_that_cannot_plan(tmp_path):
    model, loss, *_ = sparse(tmp_path / "model")
    make = partial(sentence_transformers.PlannedEpochs, pairs(), loss)
    with pytest.raises(InputError, match="encoder: got a SparseEncoder, expected a SentenceTr"):
        make(encoder=model)
    with pytest.raises(InputError, match='no embeddings="training", as its vectors do not'):
        make(encoder=encoder_in(tmp_path / "encoder"), embeddings="training")


@pytest.mark.parametrize("make", [sparse, cross, multi])
def test_vectors_of_a_function(make, tmp_path):
    """The adapter of transformers plans for any trainer."""
    encoder, dataset = encoder_in(tmp_path / "encoder"), pairs()
    _, start = planned(make, tmp_path, (PlannedBatches,))
    plans = transformers.PlannedEpochs(
        dataset,
        lambda rows: [encoder.encode(dataset[rows][side]) for side in ("anchor", "positive")],
        folder=tmp_path / "plans",
    )  # fmt: skip
    assert start(plans, remove_unused_columns=False) == epochs_of(tmp_path / "plans", 1, 2)[0]
