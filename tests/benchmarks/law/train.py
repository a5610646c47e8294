"""A static model trained from scratch, as StaticEmbedding of sentence-transformers is.

The model is a table of token vectors; the vector of a text is the mean of those of its tokens. The
loss is their MultipleNegativesRankingLoss, the optimizer torch's SparseAdam: it changes only the
tokens of a step. Written for one processor, four times as fast as their trainer.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import chain, count, islice
from math import ceil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from batchplan.data.answers import Answers
from batchplan.embedding.table import TokenTable
from batchplan.planners import PLANNERS
from batchplan.training import EpochPlans, PlanBatchSampler
from batchplan.training.sentence_transformers import NoKnownAnswers
from batchplan.training.text_columns import TextIds, first_rows
from tests.benchmarks.law.data import Data, Pairs
from tests.benchmarks.law.lines import Line

DIMENSIONS = 128
WARMUP = 0.1  # of the steps; then the rate falls to 0
BETAS, EPSILON = (0.9, 0.999), 1e-8
AT_ONCE = 4096  # texts
SKIPPED, WINDOW = 30, 100  # ranks of documents, of B3++

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Model:
    """A table of token vectors, float32 (vocabulary, dimensions), and the state of its optimizer.

    Vectors begin with a normal distribution, as torch's EmbeddingBag has them.
    """

    def __init__(self, vocabulary: int, seed: int, dimensions: int = DIMENSIONS) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.vectors: Floats = torch.randn(vocabulary, dimensions, generator=generator).numpy()
        self._first, self._second = np.zeros_like(self.vectors), np.zeros_like(self.vectors)
        self._gradient = np.zeros_like(self.vectors)  # zero but during a step
        self._steps = 0

    def embed(self, data: Data, texts: Ints) -> Floats:
        """The vectors of texts, float32 (n, dimensions)."""
        return _means(self.vectors, data.tokens, data.offsets, texts)

    def step(
        self, data: Data, texts: Ints, loss: Callable[[torch.Tensor], torch.Tensor], rate: float
    ) -> Floats:
        """One step of training. Returns the vectors of the texts before it.

        Args:
            loss: of the vectors of the texts, (n, dimensions).
        """
        found = self.embed(data, texts)
        vectors = torch.from_numpy(found).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(vectors), vectors)
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in BETAS)
        _update(
            self.vectors, self._first, self._second, self._gradient, data.tokens, data.offsets,
            texts, gradient.numpy(), np.float32(rate * second**0.5 / first),
            *map(np.float32, (*BETAS, EPSILON)),
        )  # fmt: skip
        return found


@numba.njit(cache=True, fastmath=True)
def _means(vectors, tokens, offsets, texts):
    """The mean of the token vectors of each text; zeros for a text without tokens."""
    found = np.zeros((len(texts), vectors.shape[1]), np.float32)
    for row in range(len(texts)):
        start, stop = offsets[texts[row]], offsets[texts[row] + 1]
        own = found[row]
        for place in range(start, stop):
            vector = vectors[tokens[place]]
            for k in range(len(own)):
                own[k] += vector[k]
        if stop > start:
            scale = np.float32(1) / np.float32(stop - start)
            for k in range(len(own)):
                own[k] *= scale
    return found


@numba.njit(cache=True, fastmath=True)
def _update(
    vectors, first, second, gradient, tokens, offsets, texts, of_texts, rate, beta1, beta2, epsilon
):
    """A step of Adam for the tokens of the texts, from the gradients of the vectors of the texts.

    ``gradient`` is zero before and after.
    """
    one = np.float32(1)
    for row in range(len(texts)):  # sum the gradients of each token
        start, stop = offsets[texts[row]], offsets[texts[row] + 1]
        own = of_texts[row]
        for place in range(start, stop):
            scale = one / np.float32(stop - start)
            total = gradient[tokens[place]]
            for k in range(len(own)):
                total[k] += scale * own[k]
    done = np.zeros(len(vectors), np.bool_)
    for row in range(len(texts)):
        for place in range(offsets[texts[row]], offsets[texts[row] + 1]):
            token = tokens[place]
            if done[token]:
                continue
            done[token] = True
            total, mean, square, own = gradient[token], first[token], second[token], vectors[token]
            for k in range(len(own)):
                mean[k] += (one - beta1) * (total[k] - mean[k])
                square[k] += (one - beta2) * (total[k] * total[k] - square[k])
                own[k] -= rate * mean[k] / (np.sqrt(square[k]) + epsilon)
                total[k] = 0


def train(
    data: Data, line: Line, batch_size: int, temperature: float, epochs: float, rate: float,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Train a model. Returns the scores, the figures of the last plan, processor seconds, of all
    and of making batches alone, and how many of the negatives were known answers.

    Args:
        epochs: passes over the pairs; the last one may be a part.
    """
    torch.set_flush_denormal(True)
    model, pairs = Model(data.vocabulary, seed), data.train
    loss = MultipleNegativesRankingLoss(None, scale=1 / temperature, **line.loss)

    def of(vectors: torch.Tensor) -> torch.Tensor:
        columns = list(vectors.split(len(rows)))
        found: torch.Tensor = loss.compute_loss_from_embeddings(columns, None)
        return found

    each = -(-len(pairs) // batch_size)
    steps, further = max(1, round(epochs * each)), Further(pairs, line, seed)
    known, seen = Known(pairs), []
    with tempfile.TemporaryDirectory() as folder, crossing(line.crossing):
        began, making = time.process_time(), 0.0
        batches: Shuffled | Planned = (
            Shuffled(pairs, line, batch_size, seed)
            if line.planner is None
            else Planned(data, line, model, batch_size, temperature, epochs, seed, Path(folder))
        )
        drawn = iter(batches)
        for step in range(steps):
            asked = time.process_time()
            rows = next(drawn)
            documents = further.draw(rows) if step >= each else []
            making += time.process_time() - asked
            seen.append(rows)
            share = (step + 0.5) / steps
            now = rate * min(share / WARMUP, (1 - share) / (1 - WARMUP))
            texts = np.concatenate([pairs.anchors[rows], pairs.positives[rows], *documents])
            x, y, *_ = np.split(model.step(data, texts, of, now), 2 + len(documents))
            batches.record(rows, x, y)
            further.record(rows, x, y)
        seconds = time.process_time() - began
        batches.end()
    return {"steps": steps, "seconds": seconds, "making": making, "figures": batches.figures,
            "known": sum(map(known.met, seen)),
            "negatives": sum(len(rows) * (len(rows) - 1) for rows in seen),
            "validation": score(model, data, data.validation),
            "test": score(model, data, data.test)}  # fmt: skip


class Known:
    """The known answers of pairs: their own, and each text that is on both sides for itself.

    Shares no code with what is measured.
    """

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        own = zip(pairs.anchors.tolist(), pairs.positives.tolist(), strict=True)
        both = np.intersect1d(pairs.anchors, pairs.positives).tolist()
        self._answers: dict[int, set[int]] = {}
        for anchor, document in (*own, *zip(both, both, strict=True)):
            self._answers.setdefault(anchor, set()).add(document)

    def met(self, rows: Ints) -> int:
        """The ordered pairs of rows of a batch of which the second has an answer of the first."""
        anchors, documents = (side[rows].tolist()
                              for side in (self._pairs.anchors, self._pairs.positives))  # fmt: skip
        count = Counter(documents)
        every = (self._answers[anchor] for anchor in anchors)
        return sum(count[document] for own in every for document in own) - len(rows)


@contextmanager
def crossing(known: bool) -> Iterator[None]:
    """Let plans in this context look up known answers, or separate no more than equal texts."""
    with ExitStack() as stack:
        if not known:
            stack.enter_context(patch.object(Answers, "crossing", np.empty(0, np.int64)))
        yield


class Shuffled:
    """Random batches, other ones in each epoch, of the sampler of the line."""

    def __init__(self, pairs: Pairs, line: Line, batch_size: int, seed: int) -> None:
        self.figures: dict[str, float] = {}
        self._pairs, self._batch_size = pairs, batch_size
        self._generator = torch.Generator().manual_seed(seed)
        self._sampler: Any = None
        if line.sampler != "shuffled":
            columns = {"anchor": pairs.anchors.astype(str), "positive": pairs.positives.astype(str)}
            make = NoKnownAnswers if line.sampler == "NoKnownAnswers" else NoDuplicatesBatchSampler
            self._sampler = make(Dataset.from_dict(columns), batch_size, False,
                                 generator=self._generator, seed=seed)  # fmt: skip

    def __iter__(self) -> Iterator[Ints]:
        for epoch in count():
            if self._sampler is None:
                order = torch.randperm(len(self._pairs), generator=self._generator).numpy()
                for start in range(0, len(order), self._batch_size):
                    yield order[start : start + self._batch_size]
            else:
                self._sampler.set_epoch(epoch)
                yield from map(np.array, self._sampler)

    def record(self, rows: Ints, x: Floats, y: Floats) -> None:
        """Nothing: no plan needs the vectors."""

    def end(self) -> None:
        """Nothing is left."""


class Further:
    """Documents of other rows that all anchors of a batch have as negatives, as many a row as the
    line says: without a planner random ones, else as B3++ draws them (arXiv 2505.11293).

    It draws a row in proportion to how many rows of the batch have it in their window, the
    documents of ranks 31 to 130 for the anchor; two fewer if it is one of the nearest 30 of any.
    The vectors are those of the first epoch's steps. Rows whose document the batch has are left
    out, which the paper does not say.
    """

    def __init__(self, pairs: Pairs, line: Line, seed: int) -> None:
        self._documents, self._each = pairs.positives, line.shared
        self._random = line.planner is None
        self._generator = np.random.default_rng(seed)
        self._vectors = np.zeros((2, len(pairs), DIMENSIONS if line.shared else 0), np.float32)
        self._nearest: Ints | None = None

    def record(self, rows: Ints, x: Floats, y: Floats) -> None:
        """Keep the vectors of a step, until the first documents are drawn."""
        if self._each and self._nearest is None:
            self._vectors[:, rows] = x, y

    def draw(self, rows: Ints) -> list[Ints]:
        """The texts of each column of documents: a row of the batch has one in each."""
        if not self._each:
            return []
        weights = np.zeros(len(self._documents))
        if not self._random:
            if self._nearest is None:
                self._nearest = nearest(*map(torch.from_numpy, self._vectors), SKIPPED + WINDOW)
            own = self._nearest[rows]
            weights += np.bincount(own[:, SKIPPED:].ravel(), minlength=len(weights))
            weights[own[:, :SKIPPED]] -= 2
        weights = np.maximum(weights, 1e-9)  # random ones where windows have too few
        weights[np.isin(self._documents, self._documents[rows])] = 0
        # the largest of these keys are a sample without replacement (Efraimidis and Spirakis, 2006)
        keys = self._generator.exponential(size=len(weights)) / np.maximum(weights, 1e-300)
        chosen = np.argpartition(keys, count := self._each * len(rows))[:count]
        return np.split(self._documents[self._generator.permutation(chosen)], self._each)


def nearest(x: torch.Tensor, y: torch.Tensor, ranks: int) -> Ints:
    """The rows of the most similar y for each x, by cosine similarity: (n, ranks)."""
    units = [torch.nn.functional.normalize(side) for side in (x, y)]
    similarities = (block @ units[1].T for block in units[0].split(AT_ONCE))
    found = [block.topk(min(ranks, len(y)))[1].numpy() for block in similarities]
    return np.concatenate(found)


class Planned:
    """Batches of `EpochPlans`, with the defaults that `PlannedEpochs` of sentence-transformers has:
    the first epoch, or half of a single one, is random, and its steps record the vectors of the
    plan; equal texts share a vector; rows that are right answers to each other do not meet."""

    def __init__(
        self, data: Data, line: Line, model: Model, batch_size: int, temperature: float,
        epochs: float, seed: int, folder: Path,
    ) -> None:  # fmt: skip
        pairs, planner = data.train, str(line.planner)
        codes = np.stack([pairs.anchors, pairs.positives])
        known = {field.name for field in fields(PLANNERS[planner].options)}
        options: dict[str, Any] = {"embeddings": "training", "random_epochs": None}
        options |= line.plan
        if "temperature" in known:
            options.setdefault("temperature", temperature)
        if "anchor_id" in known:
            ids = TextIds(folder, ["anchor", "positive"], None)
            ids.write(codes)
            options |= ids.options

        def embed(rows: Ints) -> tuple[Floats, Floats]:
            return self._cut(*(model.embed(data, texts[rows]) for texts in codes))

        def predict(*known: Any) -> Any:
            sides = [_lists(data, side) for side in codes]
            return TokenTable(sides, model.vectors).predict(*known)

        self._dimensions = line.dimensions
        self._records = options["embeddings"] == "training"
        own = min(line.joined or batch_size, batch_size)
        self._together = batch_size // own
        self._plans = EpochPlans(
            folder / "plans", planner, embed=embed, num_rows=len(pairs), batch_size=own,
            epochs=ceil(epochs), predict=predict if self._records else None,
            same=lambda: first_rows(codes), seed=1000 * seed, device="cpu", **options,
        )  # fmt: skip

    @property
    def figures(self) -> dict[str, float]:
        """Of the last plan; see `EpochPlans`."""
        return self._plans.figures

    def __iter__(self) -> Iterator[Ints]:
        sampler = PlanBatchSampler(self._plans)
        for epoch in count():
            sampler.set_epoch(epoch)
            batches = iter(sampler)
            while rows := list(chain.from_iterable(islice(batches, self._together))):
                yield np.array(rows)

    def record(self, rows: Ints, x: Floats, y: Floats) -> None:
        """Keep the vectors of a step for the next plan."""
        if self._records:
            self._plans.record(rows, *self._cut(x, y))

    def _cut(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """The dimensions that plans are made from."""
        return x[:, : self._dimensions], y[:, : self._dimensions]

    def end(self) -> None:
        """Give the vectors up."""
        self._plans.end()


def _lists(data: Data, texts: Ints) -> pa.LargeListArray:
    """The tokens of texts."""
    sizes = (data.offsets[1:] - data.offsets[:-1])[texts]
    ends = np.cumsum(sizes)
    places = np.arange(ends[-1]) + np.repeat(data.offsets[texts] - ends + sizes, sizes)
    tokens = pa.array(data.tokens[places].astype(np.int32))
    return pa.LargeListArray.from_arrays(np.append(0, ends), tokens)


def score(model: Model, data: Data, pairs: Pairs) -> float:
    """The mean nDCG@10 in percent of held-out pairs: of each anchor among all their positives, and
    of each positive among all their anchors. All positives of an anchor count as right."""
    sides = [np.unique(side, return_inverse=True) for side in (pairs.anchors, pairs.positives)]
    units = [torch.nn.functional.normalize(torch.from_numpy(model.embed(data, texts)))
             for texts, _ in sides]  # fmt: skip
    right = torch.zeros(*map(len, units))
    right[sides[0][1], sides[1][1]] = 1
    similarity = units[0] @ units[1].T
    both = [ndcg(similarity, right), ndcg(similarity.T, right.T)]
    return 100 * float(np.mean(both))


def ndcg(similarity: torch.Tensor, right: torch.Tensor, cut: int = 10) -> float:
    """The mean nDCG of rows, whose right answers are ones: (queries, documents)."""
    weights = 1 / torch.log2(torch.arange(2.0, cut + 2))
    found = right.gather(1, similarity.topk(cut)[1]) @ weights
    best = weights.cumsum(0)[right.sum(1).clamp(max=cut).long() - 1]
    return float((found / best).mean())
