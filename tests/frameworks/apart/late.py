"""The recipe of docs/frameworks.md for PyLate, with a small random ColBERT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from datasets import Dataset
from pylate import losses, models, utils
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from batchplan.training.transformers import PlannedBatches, PlannedEpochs

ROWS, EPOCHS = 47, 2


class PlannedTrainer(PlannedBatches, SentenceTransformerTrainer):
    """Keeps the rows that each step trains on: as its anchors name them."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        texts = map(self.model.tokenizer.convert_ids_to_tokens, inputs["anchor_input_ids"])
        words = [word for text in texts for word in text if word.startswith("x")]
        self.seen.append([int(word.removeprefix("x")) for word in words])
        return super().training_step(model, inputs, num_items_in_batch)


def train(folder: Path, _rank: int, _world_size: int, workers: str):
    """The rows that each step of two epochs trains on."""
    model = models.ColBERT(
        str(folder / "model"), embedding_size=8, query_length=8, document_length=8, device="cpu",
        do_query_expansion=False,
    )  # fmt: skip
    columns = {
        name: [f"{side}{row}" for row in range(ROWS)]
        for name, side in (("anchor", "x"), ("positive", "y"))
    }
    dataset = Dataset.from_dict(columns)

    def embed(rows):
        sides = (
            model.encode(
                dataset[rows.tolist()][name], is_query=name == "anchor", show_progress_bar=False
            )
            for name in ("anchor", "positive")
        )
        return [np.stack([tokens.mean(0) for tokens in side]).astype(np.float32) for side in sides]

    plans = PlannedEpochs(dataset, embed, folder=folder / "plans")
    arguments = SentenceTransformerTrainingArguments(
        str(folder / "run"), per_device_train_batch_size=4, num_train_epochs=EPOCHS, use_cpu=True,
        remove_unused_columns=False, dataloader_num_workers=int(workers), report_to="none",
        save_strategy="no", disable_tqdm=True, learning_rate=1e-2,
    )  # fmt: skip
    trainer = PlannedTrainer(
        model,
        arguments,
        dataset,
        loss=losses.Contrastive(model),
        data_collator=utils.ColBERTCollator(model.tokenize),
        callbacks=[plans],
    )
    trainer.seen = []
    trainer.train()
    return trainer.seen
