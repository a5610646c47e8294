"""The recipe of docs/frameworks.md for ms-swift, with a small random Qwen2."""

from __future__ import annotations

from pathlib import Path

import torch
from datasets import Dataset
from swift.callbacks import callbacks_map
from swift.dataset.utils import LazyLLMDataset
from swift.model import get_model_processor
from swift.template import get_template
from swift.trainers import EmbeddingTrainer, TrainingArguments
from tokenizers import pre_tokenizers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from batchplan.training.transformers import PlannedBatches, PlannedEpochs

ROWS, EPOCHS = 47, 2


class PlannedTrainer(PlannedBatches, EmbeddingTrainer):
    """Keeps the rows that each step trains on: as its anchors name them."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        anchors = inputs["input_ids"][::2]  # positives take turns with them
        texts = self.processing_class.batch_decode(anchors, skip_special_tokens=True)
        self.seen.append([int(text.removeprefix("x")) for text in texts])
        return super().training_step(model, inputs, num_items_in_batch)


def save_model(folder):
    """A Qwen2 of one layer, whose every letter is one token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer({letter: number for number, letter in enumerate(letters)}, [])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, intermediate_size=16, max_position_embeddings=64,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)


def train(folder: Path, rank: int, _world_size: int, workers: str):
    """The rows that each step of two epochs trains on."""
    path = folder / f"model-{rank}"
    save_model(path)
    model, processor = get_model_processor(
        str(path), model_type="qwen2", task_type="embedding", torch_dtype=torch.float32,
        device_map="cpu", use_hf=True, template_type="dummy",
    )  # fmt: skip
    template = get_template(processor, template_type="dummy")
    template.set_mode("train")
    rows = [
        {
            "messages": [{"role": "user", "content": f"x{row}"}],
            "positive_messages": [[{"role": "user", "content": f"y{row}"}]],
        }
        for row in range(ROWS)
    ]
    dataset = LazyLLMDataset(Dataset.from_list(rows), template.encode, strict=True)

    def embed(rows):
        batch = template.data_collator([dataset[row] for row in rows])
        tokens = {name: batch[name] for name in ("input_ids", "attention_mask")}
        vectors = model(**tokens)["last_hidden_state"]
        return vectors[::2], vectors[1::2]

    plans = PlannedEpochs(dataset, embed, folder=folder / "plans", scope="global", tail="drop")
    callbacks_map["plans"] = lambda args, trainer: plans
    arguments = TrainingArguments(
        str(folder / "run"), per_device_train_batch_size=4, num_train_epochs=EPOCHS, use_cpu=True,
        dataloader_num_workers=int(workers), report_to=[], save_strategy="no", disable_tqdm=True,
        learning_rate=1e-2, loss_type="infonce", callbacks=["plans"], check_model=False,
        remove_unused_columns=False, gradient_accumulation_steps=1, gradient_checkpointing=False,
    )  # fmt: skip
    trainer = PlannedTrainer(model=model, args=arguments, template=template, train_dataset=dataset)
    trainer.seen = []
    trainer.train()
    return trainer.seen
