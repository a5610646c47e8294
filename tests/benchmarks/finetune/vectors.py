"""Vectors that cost less than a pass of the model, or that a plan is made from as they are.

Each of `VECTORS` takes an encoder and the texts of each side, and returns the vectors of each side,
(N, d).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from batchplan.embedding.table import TokenTable, token_table

Sides = Sequence[Sequence[str]]
Arrays = list[NDArray[Any]]
DIMENSIONS = 256  # of distilled vectors, as of model2vec
RIDGE = 1e-2


def passed(
    encoder: SentenceTransformer, sides: Sides, layers: int | None = None, tokens: int | None = None
) -> Arrays:
    """The vectors of the encoder, or of its first layers, or of the first tokens of each text."""
    if layers is not None:
        encoder = deepcopy(encoder)
        bert = encoder[0].auto_model
        bert.encoder.layer = bert.encoder.layer[:layers]
    usual, encoder.max_seq_length = encoder.max_seq_length, tokens or encoder.max_seq_length
    found = [encoder.encode(list(side), batch_size=128) for side in sides]
    encoder.max_seq_length = usual
    return found


def table(encoder: SentenceTransformer, sides: Sides) -> Arrays:
    """Means of the input vectors of the tokens of each text."""
    return of_rows(usual_table(encoder, sides), sides)


def distilled(encoder: SentenceTransformer, sides: Sides) -> Arrays:
    """The vectors of `distilled_table`."""
    return of_rows(distilled_table(encoder, sides), sides)


def of_rows(tokens: TokenTable, sides: Sides) -> Arrays:
    """The vectors of all rows."""
    return list(tokens.embed(np.arange(len(sides[0]))))


def usual_table(encoder: Any, sides: Sides) -> TokenTable:
    """The model's own table of tokens, which predicts by default."""
    return token_table(encoder, [[side] for side in sides])


def distilled_table(encoder: SentenceTransformer, sides: Sides) -> TokenTable:
    """A table of tokens as model2vec distils it: each token passes through the model alone, and the
    principal components of these vectors are the table. Only tokens that occur pass."""
    tokenizer, most = encoder.tokenizer, encoder.max_seq_length
    texts = [text for side in sides for text in side]
    tokens = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=most)
    used = np.unique(np.concatenate(tokens["input_ids"]).astype(np.int64))
    ends = [np.full(len(used), one) for one in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
    alone = torch.as_tensor(np.stack([ends[0], used, ends[1]], 1))
    encoder.eval()
    with torch.no_grad():
        found = torch.cat([
            encoder({"input_ids": ids, "attention_mask": torch.ones_like(ids)})[
                "sentence_embedding"
            ].float()
            for ids in alone.split(512)
        ]).numpy()  # fmt: skip
    found -= found.mean(0)
    components = np.linalg.eigh(found.T @ found)[1][:, -DIMENSIONS:]
    vectors = np.zeros((len(tokenizer), DIMENSIONS), np.float32)
    vectors[used] = found @ components
    distilled = SimpleNamespace(tokenizer=tokenizer, max_seq_length=most, token_vectors=vectors)
    return usual_table(distilled, sides)


class FirstLayers:
    """Predicts the vectors of a model from those of its first layers, by ridge regression on the
    rows that training has met."""

    def __init__(self, encoder: SentenceTransformer, sides: Sides, layers: int = 1) -> None:
        self.inputs = [side.astype(np.float64) for side in passed(encoder, sides, layers)]

    def predict(
        self, rows: NDArray[Any], sides: Sequence[NDArray[Any]], wanted: NDArray[Any]
    ) -> Arrays:
        """As `TokenTable.predict`."""
        found = []
        for inputs, side in zip(self.inputs, sides, strict=True):
            known, mean = side[rows].astype(np.float64), inputs[rows].mean(0)
            fitted = inputs[rows] - mean
            gram = fitted.T @ fitted
            gram += RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
            linear = np.linalg.solve(gram, fitted.T @ (known - known.mean(0)))
            predicted = known.mean(0) + (inputs[wanted] - mean) @ linear
            found.append(predicted.astype(np.float16))
        return found


VECTORS: dict[str, Callable[..., Arrays]] = {
    "table": table,
    "distilled": distilled,
    "layer-1": partial(passed, layers=1),
    "layers-2": partial(passed, layers=2),
    "tokens-16": partial(passed, tokens=16),
    "pass": passed,
}
#: What predicts the vectors of the rest of an epoch.
PREDICTORS: dict[str, Callable[..., Any]] = {
    "table": usual_table,
    "distilled": distilled_table,
    "layer-1": FirstLayers,
    "layers-2": partial(FirstLayers, layers=2),
}
