"""A small model of sentence-transformers with random weights, and pairs of texts that say which row
they are."""

from __future__ import annotations

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

ROWS = 47
PROMPTS = ["ask:", "say:"]
QUICKLY = {  # arguments of a training on the CPU that writes nothing
    "num_train_epochs": 2, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none",
    "disable_tqdm": True, "save_strategy": "no",
}  # fmt: skip
FRESH = {"embeddings": "fresh", "random_epochs": 0}  # each epoch is planned from new vectors
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PROMPTS]


def save_model(folder, num_rows=ROWS, sides="xy"):
    """A BERT of two layers whose every word is one token."""
    words = [f"{side}{row}" for side in sides for row in range(num_rows)]
    vocabulary = {word: number for number, word in enumerate(_SPECIAL + words)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_model(folder):
    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu")


def pairs(num_rows=ROWS):
    return Dataset.from_dict(
        {
            "anchor": [f"x{row}" for row in range(num_rows)],
            "positive": [f"y{row}" for row in range(num_rows)],
        }
    )


def rows_of(tokens, num_rows=ROWS):
    """The rows that texts name, by their tokens (texts, tokens): the words of rows come last in the
    vocabulary."""
    return ((tokens.max(dim=1).values - len(_SPECIAL)) % num_rows).tolist()
