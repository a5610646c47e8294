"""The sparse graph of large similarities."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import load_all_rows
from batchplan.graph import csr
from batchplan.guard.apart import separated
from batchplan.guard.guard import Guard
from batchplan.guard.rules import Rules, breaks, bytes_of_rows, rules_of
from batchplan.kernels import njit
from batchplan.runtime import Runtime
from batchplan.threads import in_blocks

_ROWS = 1024  # rows that a thread takes at once, with their edges
_EDGES = 1 << 18  # edges at once on other devices: a gigabyte or so of gathered rows


@dataclass(frozen=True, eq=False)
class SimilarityGraph:
    """The largest off-diagonal entries of X Y^T as a compressed sparse row matrix.

    Attributes:
        indptr: int64 (N + 1,); the neighbours of row i are ``indices[indptr[i]:indptr[i + 1]]``.
        indices: int32 (E,), int64 where N demands it; sorted and unique within a row, never i.
        weights: float32 (E,) similarities x_i . y_j, or None.
        threshold: the smallest similarity, before `without` removed edges.

    The tensors live on one device, ``device``.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor | None
    threshold: float

    @property
    def num_rows(self) -> int:
        """N, the number of vertices."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """E, the number of stored entries (an edge in both directions counts twice)."""
        return self.indices.numel()

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.indices.device

    def without(
        self, guard: Guard, embeddings: Embeddings, runtime: Runtime, *, similarity: str = "cosine"
    ) -> "SimilarityGraph":
        """The graph without the edges whose two rows break a guard, in either direction.

        Args:
            guard: with ceilings, this graph must have weights.
            embeddings: of the graph. If a pair has two similarities, the rows of both sides
                are loaded, 8 N d bytes, or the rows of the guard's reference.
            runtime: memory budget, progress.
            similarity: of the graph and the guard, ``cosine`` or ``dot``.

        Raises:
            ResourceError: those rows do not fit into the memory budget.
        """
        if not guard.active:
            return self
        keys = torch.empty((0, 0), device=self.device)
        normalize = similarity == "cosine"
        with runtime.stage("guard", self.num_rows) as advance:
            if need := embeddings.num_rows * bytes_of_rows(guard, embeddings):
                need += 0 if guard.reference else 4 * embeddings.num_rows * embeddings.dim
                hint = "guard by groups and equal rows only, without a limit on similarity"
                runtime.require_memory(need, "guard: the rows of both sides", hint, self.device)
                if guard.reference is None:
                    keys = load_all_rows(embeddings.y, self.device, normalize)
            rules = rules_of(guard, embeddings, keys, normalize)
            allowed = _allowed_cpu if self.device.type == "cpu" else _allowed_torch
            keep = allowed(self, rules, advance)
        ends = torch.cat([self.indptr.new_zeros(1), keep.cumsum(0)])
        weights = None if self.weights is None else self.weights[keep]
        return SimilarityGraph(ends[self.indptr], self.indices[keep], weights, self.threshold)


def _allowed_cpu(
    graph: SimilarityGraph, rules: Rules, advance: Callable[[int], None]
) -> torch.Tensor:
    """bool (E,): the edges that do not break the guard."""
    n = graph.num_rows
    keep = torch.empty(graph.num_edges, dtype=torch.bool)
    weights = np.empty(0, np.float32) if graph.weights is None else graph.weights.numpy()
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    edges = indptr, indices, weights, rules.compiled(), keep.numpy()
    in_blocks(lambda start, stop: _keep_allowed(start, stop, *edges), n, _ROWS, advance)
    return keep


@njit
def _keep_allowed(start, stop, indptr, indices, weights, rules, keep):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            value = weights[e] if weights.size else np.float32(0)
            keep[e] = not breaks(i, indices[e], value, rules)


def _allowed_torch(
    graph: SimilarityGraph, rules: Rules, advance: Callable[[int], None]
) -> torch.Tensor:
    """The same in torch, on any device."""
    keep = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
    rows = csr.row_of_entry(graph.indptr)
    for start in range(0, graph.num_edges, _EDGES):
        part = slice(start, start + _EDGES)
        i, j = rows[part], graph.indices[part].long()
        keep[part] &= ~separated(rules.apart, i, j)
        if graph.weights is not None and rules.ceilings.numel():
            highest = graph.weights[part]
            if rules.referred:
                highest = (rules.x[i] * rules.y[j]).sum(1)
            if len(rules.x):
                highest = torch.maximum(highest, (rules.y[i] * rules.x[j]).sum(1))
            keep[part] &= highest < torch.minimum(rules.ceilings[i], rules.ceilings[j])
    advance(graph.num_rows)
    return keep
