"""The graph that batches are partitioned by: nearest neighbours, weighted by the loss they add.

If row b joins the batch of row a, the loss of a rises by log(1 + exp(s_ab / tau) / S_a), where S_a
is the sum of exponentials of a without b: its own pair and B - 1 average rows. An edge weighs the
sum of this rise over both rows and both directions, so the weight inside batches follows the loss,
as long as few neighbours of a row share its batch. With mined negatives, an anchor meets all
documents of the other row: exp(s_ab / tau) is a sum over these, from x to y.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import log

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.graph.csr import square, union_with_transpose
from batchplan.graph.neighbors import neighbors_both_ways
from batchplan.guard.guard import Guard
from batchplan.kernels import njit, place_of
from batchplan.runtime import FEWER, Runtime, full_float32
from batchplan.threads import block_height, in_blocks

_BYTES = 140  # per listed neighbour: united both ways, weighed, and cut into parts
_SAMPLED = 256  # rows that represent all others
_ROWS_AT_ONCE = 512  # their temporaries stay in the cache
_MOST_ROWS = 4096  # whose edges a thread weighs at once
_SAMPLE = 5  # the generator stream of the sample


@dataclass(frozen=True, eq=False)
class Affinity:
    """A symmetric weighted graph of N rows, without loops.

    Attributes:
        indptr: int64 (N + 1,).
        indices: int32 or int64 (E,), sorted and unique within a row.
        weights: float32 (E,), above 0; both entries of a pair have the same.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32] | NDArray[np.int64]
    weights: NDArray[np.float32]

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.indptr) - 1

    def among(self, rows: NDArray[np.int64]) -> "Affinity":
        """The subgraph of some rows (n,), renumbered in their order."""
        subgraph = square(self.indptr, self.indices, self.weights)[rows][:, rows]
        return Affinity(subgraph.indptr.astype(np.int64), subgraph.indices, subgraph.data)


def neighbor_lists(
    embeddings: Embeddings, k: int, runtime: Runtime, *, similarity: str, guard: Guard
) -> list[NDArray[np.int64]]:
    """int64 (N, k) each: the nearest y of every x, and where y is another matrix the nearest x of
    every y; raises what `neighbors_both_ways` does. k is N - 1 at most; a single row has the
    neighbour -1."""
    k = min(k, embeddings.num_rows - 1)
    if k == 0:
        return [np.full((1, 1), -1)]
    both = neighbors_both_ways(embeddings, k, runtime, similarity=similarity, guard=guard)
    return [neighbors.indices for neighbors in both]


@full_float32()
def affinity_graph(
    lists: Sequence[NDArray[np.int64]],
    x: torch.Tensor,
    y: torch.Tensor,
    runtime: Runtime,
    *,
    batch_size: int,
    temperature: float,
    negatives: torch.Tensor | None = None,
    missing: torch.Tensor | None = None,
    ceilings: NDArray[np.float32] | None = None,
) -> Affinity:
    """Unite lists of neighbours and weigh the edges; O(E (1 + k) d).

    Args:
        lists: int64 (N, k) each: neighbours of every row, -1 for none.
        x, y: float32 (N, d) on the CPU; y may be x.
        runtime: seed of the sampled rows, progress.
        batch_size: B.
        temperature: tau.
        negatives: float32 (k, N, d) on the CPU, mined negatives; None for pairs.
        missing: bool (k, N), which of these do not exist; None if all do.
        ceilings: float32 (N,), of a guard: with mined negatives, pairs that reach one by any
            document get no edge. Lists of pairs have none.

    Raises:
        ResourceError: the graph and its partition do not fit into the memory budget.
    """
    n = len(x)
    need = _BYTES * n * sum(neighbors.shape[1] for neighbors in lists)
    what = f"partition: {lists[0].shape[1]} neighbours of each of {n} rows"
    runtime.require_memory(need, what, FEWER)
    with runtime.stage("weigh"):
        directed = _united(np.concatenate(lists, axis=1))
        pattern = [torch.from_numpy(part) for part in directed]
        united = union_with_transpose(pattern[0], pattern[1])
        indptr, indices = united[0].numpy(), united[1].numpy()
        sample = np.sort(runtime.generator(_SAMPLE).choice(n, min(_SAMPLED, n), replace=False))
        if negatives is None:
            negatives = torch.empty((0, *x.shape))
        if missing is None:
            missing = torch.zeros(negatives.shape[:2], dtype=torch.bool)
        documents = [(y, None), *zip(negatives, missing, strict=True)]
        forth = back = _backgrounds(x, documents, sample, batch_size, temperature)
        if y is not x or len(negatives):
            back = _backgrounds(y, [(x, None)], sample, batch_size, temperature)
        if ceilings is None or not len(negatives):
            ceilings = np.full(n * bool(len(negatives)), np.inf, np.float32)
        sides = x.numpy(), y.numpy(), negatives.numpy(), missing.numpy(), ceilings
        weights = np.empty(len(indices), np.float32)

        def weigh(start: int, stop: int) -> None:
            _weigh(start, stop, indptr, indices, sides, 1 / temperature, forth, back, weights)

        in_blocks(weigh, n, block_height(n, _MOST_ROWS))
        if (weights == 0).any():  # they are above 0 otherwise
            ends = np.append(0, np.cumsum(weights > 0))
            indptr, indices = ends[indptr], indices[weights > 0]
            weights = weights[weights > 0]
    return Affinity(indptr, indices, weights)


def _united(neighbors: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """``indptr`` and ``indices`` of the lists as a directed graph, sorted and unique per row."""
    ordered = np.sort(neighbors, axis=1)
    kept = ordered >= 0
    kept[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    indptr = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum(kept.sum(axis=1), out=indptr[1:])
    return indptr, ordered[kept].astype(np.int32 if len(ordered) < 2**31 else np.int64)


def _backgrounds(
    own: torch.Tensor,
    documents: Sequence[tuple[torch.Tensor, torch.Tensor | None]],
    sample: NDArray[np.int64],
    batch_size: int,
    temperature: float,
) -> NDArray[np.float64]:
    """float64 (N,): log S of each row, from its own documents and the mean over sampled rows.

    Args:
        own: float32 (N, d).
        documents: of all rows, float32 (N, d) each, and bool (N,), which of them are missing.
    """
    columns = torch.from_numpy(sample)
    drawn = [others[columns] for others, _ in documents]
    out = np.empty(len(own))

    def work(start: int, stop: int) -> None:
        rows = own[start:stop]
        here = torch.arange(start, stop)
        sums, positives = [], []
        for (others, missing), few in zip(documents, drawn, strict=True):
            logits = (rows @ few.T).double() / temperature
            logits[here[:, None] == columns] = -torch.inf
            positive = (rows.double() * others[start:stop]).sum(1) / temperature
            if missing is not None:
                logits[:, missing[columns]] = -torch.inf
                positive[missing[here]] = -torch.inf
            sums.append(logits.logsumexp(1))
            positives.append(positive)
        mean = reduce(torch.logaddexp, sums) - log(len(sample)) + log(batch_size - 1)
        own_pair = reduce(torch.logaddexp, positives)
        out[start:stop] = torch.logaddexp(own_pair, mean).numpy()

    in_blocks(work, len(own), _ROWS_AT_ONCE)
    return out


@njit(fastmath={"reassoc", "contract", "nsz"})
def _weigh(start, stop, indptr, indices, sides, scale, forth, back, weights):  # type: ignore[no-untyped-def]
    """Fill in the weight of each entry of rows from start to stop, 0 if a guard keeps the rows
    apart; the lower row of a pair computes it for both."""
    x, y, negatives, missing, ceilings = sides
    for a in range(start, stop):
        for e in range(indptr[a], indptr[a + 1]):
            b = indices[e]
            if b < a:
                continue
            s_ab = s_ba = np.float32(0)
            for k in range(x.shape[1]):
                s_ab += x[a, k] * y[b, k]
                s_ba += x[b, k] * y[a, k]
            near = False
            if len(negatives):
                of_b, of_a = negatives[:, b], negatives[:, a]
                logit_a, most_a = _with_negatives(s_ab, x[a], of_b, missing[:, b], scale)
                logit_b, most_b = _with_negatives(s_ba, x[b], of_a, missing[:, a], scale)
                near = max(most_a, most_b) >= min(ceilings[a], ceilings[b])
                weight = _softplus(logit_a - forth[a]) + _softplus(logit_b - forth[b])
                weight += _softplus(s_ab * scale - back[b]) + _softplus(s_ba * scale - back[a])
            else:
                weight = _softplus(s_ab * scale - forth[a]) + _softplus(s_ab * scale - back[b])
                weight += _softplus(s_ba * scale - forth[b]) + _softplus(s_ba * scale - back[a])
            weight = 0.0 if near else max(weight, 1e-30)
            weights[e] = weight
            weights[place_of(a, indices, indptr[b], indptr[b + 1])] = weight


@njit(fastmath={"reassoc", "contract", "nsz"})
def _with_negatives(similarity, anchor, negatives, missing, scale):  # type: ignore[no-untyped-def]
    """The log-sum-exp of the logits of an anchor with a positive, of known similarity, and with
    mined negatives (k, d); and the largest similarity."""
    logit, most = similarity * scale, similarity
    for c in range(len(negatives)):
        if missing[c]:
            continue
        other = np.float32(0)
        for k in range(anchor.size):
            other += anchor[k] * negatives[c, k]
        logit += _softplus(other * scale - logit)
        most = max(most, other)
    return logit, most


@njit
def _softplus(value):  # type: ignore[no-untyped-def]
    """log(1 + exp(value))."""
    return max(value, 0.0) + np.log1p(np.exp(-abs(value)))
