"""The scores of an encoder, by the evaluators of sentence-transformers."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import (
    InformationRetrievalEvaluator,
    NanoBEIREvaluator,
)

from tests.benchmarks.finetune.domains import COLUMNS
from tests.benchmarks.finetune.encoders import autocast
from tests.benchmarks.finetune.table import SCORES

Run = dict[str, Any]


class Retrieval(InformationRetrievalEvaluator):
    """The library's evaluator, for vectors of unit length that are there already."""

    vectors: dict[str, torch.Tensor]  # of each text

    def embed_inputs(self, _: Any, texts: Any, **__: Any) -> torch.Tensor:  # type: ignore[override]
        """The vectors of the texts, one a row."""
        return torch.stack([self.vectors[text] for text in texts])


def evaluators(pairs: Dataset) -> list[Retrieval]:
    """The right positive of each anchor among all positives, and the anchor of each positive."""
    texts = [{str(row): text for row, text in enumerate(pairs[name])} for name in COLUMNS]
    own = {row: {row} for row in texts[0]}
    cuts = {f"{name}_at_k": [10] for name in ("mrr", "ndcg", "accuracy", "precision_recall", "map")}
    return [Retrieval(queries, corpus, own, write_csv=False, **cuts)
            for queries, corpus in (texts, texts[::-1])]  # fmt: skip


def scores(encoder: SentenceTransformer, both: list[Retrieval]) -> Run:
    """nDCG@10, MRR@10 and recall@10, means of both ways, in percent."""
    texts = sorted({*both[0].queries, *both[0].corpus})
    with autocast():
        found = encoder.encode(texts, batch_size=128, convert_to_tensor=True)
    vectors = dict(zip(texts, torch.nn.functional.normalize(found.float()), strict=True))
    total = dict.fromkeys(SCORES, 0.0)
    for one in both:
        one.vectors = vectors
        for name, value in one(encoder).items():
            if (short := name.removeprefix("cosine_")) in SCORES:
                total[short] += 50 * value
    return total


def nano_beir(encoder: SentenceTransformer, dataset: str, tokens: int = 256) -> float:
    """The mean nDCG@10 on the 13 data sets of NanoBEIR, in percent.

    Args:
        encoder: in float32, as others report it.
        dataset: on the Hub, or a folder.
        tokens: of a text, at most; 256 are what MiniLM-L6 reads.
    """
    trained, encoder.max_seq_length = encoder.max_seq_length, tokens
    found = NanoBEIREvaluator(dataset_id=dataset, write_csv=False)(encoder)
    encoder.max_seq_length = trained
    return 100 * found["NanoBEIR_mean_cosine_ndcg@10"]
