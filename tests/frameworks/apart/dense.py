"""The recipe of docs/frameworks.md for tevatron, with a small random BERT."""

from __future__ import annotations

from pathlib import Path

from datasets import Dataset
from tevatron.arguments import DataArguments, DenseTrainingArguments, ModelArguments
from tevatron.data import QPCollator, TrainDataset
from tevatron.modeling import DenseModel
from tevatron.trainer import DenseTrainer
from transformers import AutoTokenizer

from batchplan.training.transformers import PlannedBatches, PlannedEpochs

ROWS, EPOCHS = 47, 2


class PlannedTrainer(PlannedBatches, DenseTrainer):
    """Keeps the rows that each step trains on: as its queries name them."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        words = map(self.words, inputs[0]["input_ids"])
        self.seen.append([int(word) for word in words])
        return super().training_step(model, inputs, num_items_in_batch)

    def compute_loss(self, model, inputs, **_others):  # which transformers 5 passes
        return super().compute_loss(model, inputs)

    def words(self, tokens):
        (word,) = self.processing_class.decode(tokens, skip_special_tokens=True).split()
        return word.removeprefix("x")


def train(folder: Path, _rank: int, _world_size: int, workers: str):
    """The rows that each step of two epochs trains on."""
    path = str(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.encode_plus = tokenizer  # which transformers 5 has no more
    arguments = DenseTrainingArguments(
        str(folder / "run"), per_device_train_batch_size=4, num_train_epochs=EPOCHS, use_cpu=True,
        remove_unused_columns=False, dataloader_num_workers=int(workers), report_to="none",
        save_strategy="no", disable_tqdm=True, learning_rate=1e-2,
    )  # fmt: skip
    data = DataArguments(train_n_passages=2)
    model = DenseModel.build(ModelArguments(path), data, arguments)
    texts = {
        "query": [f"x{row}" for row in range(ROWS)],
        "positives": [[f"y{row}"] for row in range(ROWS)],
        "negatives": [[f"y{(row + 1) % ROWS}"] for row in range(ROWS)],
    }
    dataset = TrainDataset(data, Dataset.from_dict(texts), tokenizer)

    def embed(rows):
        model = trainer.model
        sides = [texts["query"][r] for r in rows], [texts["positives"][r][0] for r in rows]
        x, y = (tokenizer(side, return_tensors="pt") for side in sides)
        return [model.encode_query(x)[1], model.encode_passage(y)[1]]

    plans = PlannedEpochs(dataset, embed, folder=folder / "plans", tail="drop")
    trainer = PlannedTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=QPCollator(tokenizer, max_p_len=4, max_q_len=4),
        processing_class=tokenizer,
        callbacks=[plans],
    )
    dataset.trainer, trainer.seen = trainer, []
    trainer.train()
    return trainer.seen
