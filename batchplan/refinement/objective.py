"""The objective of refinement: the training loss over the pairs of rows that the guard allows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.candidates import Candidates, Data
from batchplan.data.rows import both_sides, mined
from batchplan.graph.affinity import Affinity, affinity_graph
from batchplan.graph.listed import listed_affinity
from batchplan.guard.guard import Guard
from batchplan.refinement.blocks import APART
from batchplan.runtime import IN_PARTS, Runtime
from batchplan.typing import Float32Array, Int64Array

Sides = tuple[torch.Tensor, torch.Tensor]  # float32 (N, d) each: the rows of x and of y


@dataclass(frozen=True, eq=False)
class Objective:
    """The sum over the rows of all batches, and both directions, of log sum_j exp(s_ij / tau).

    j runs over row i and the rows of its batch that may be its negatives. From y to x, s_ij is
    y_i . x_j. From x to y it is x_i . y_j. With mined negatives, all documents of row j are
    negatives of an anchor, so exp(s_ij / tau) is the sum of exp(x_i . d / tau) over them.

    Pairs that break the guard do not count. A batch with fewer pairs of a group, or of equal rows,
    is better at any loss. Each too similar pair costs ``penalty`` nats.

    Attributes:
        x, y: float32 (N, d), of unit length under cosine similarity; y may be x.
        negatives: float32 (k, N, d), mined negatives, also of unit length under cosine.
        missing: bool (k, N), which of these do not exist; None if all do.
        similarity: ``cosine`` or ``dot``.
        temperature: tau.
        guard: which rows must be in different batches.
        penalty: nats; `APART` to separate rows at any cost.
        kinds: int64 (N,), only rows of the same kind are exchanged; (0,) if there is one kind.
        reference: float32 (N, d') each, both sides of another model, by whose similarities the
            guard judges; None without a reference.
        lists: mined lists, if there are no vectors. Then x and y are (N, 0), and the sum has only
            the direction from x to y.
    """

    x: torch.Tensor
    y: torch.Tensor
    negatives: torch.Tensor
    missing: torch.Tensor | None
    similarity: str
    temperature: float
    guard: Guard
    penalty: float
    kinds: Int64Array
    reference: Sides | None
    lists: Candidates | None = None

    @property
    def sides(self) -> Sides:
        """x and y."""
        return self.x, self.y

    @cached_property
    def lengths(self) -> Float32Array:
        """float32 (2, N): the lengths of the rows of x, and of the longest document of each row."""
        x, *documents = (side.norm(dim=1).cpu().numpy() for side in (*self.sides, *self.negatives))
        return np.array([x, np.max(documents, axis=0)], np.float32)


def make_objective(
    embeddings: Data,
    runtime: Runtime,
    *,
    similarity: str,
    temperature: float,
    guard: Guard | None = None,
    penalty: float | None = None,
    kinds: Int64Array | None = None,
) -> Objective:
    """Make an objective; if there are vectors, load them as float32.

    Raises:
        InputError: a zero row under cosine.
        ResourceError: the rows do not fit into the memory budget.
    """
    embeddings.require_similarities(similarity)
    normalize, cpu = similarity == "cosine", torch.device("cpu")
    guard = guard or Guard()
    reference, n = guard.reference, embeddings.num_rows
    missing = lists = None
    if isinstance(embeddings, Candidates):
        lists, x, negatives = embeddings, torch.empty((n, 0)), torch.empty((0, n, 0))
        y = x
    else:
        require_rows_fit(embeddings, guard, runtime)
        x, y = both_sides(embeddings, cpu, normalize)
        negatives, missing = mined(embeddings, cpu, normalize), embeddings.missing
    return Objective(
        x=x,
        y=y,
        negatives=negatives,
        missing=None if missing is None else torch.from_numpy(missing),
        similarity=similarity,
        temperature=temperature,
        guard=guard,
        penalty=APART if penalty is None else min(penalty, APART),
        kinds=np.empty(0, np.int64) if kinds is None else kinds,
        reference=None if reference is None else both_sides(reference, cpu, normalize),
        lists=lists,
    )


def swap_graph(
    objective: Objective,
    lists: list[Int64Array],
    runtime: Runtime,
    *,
    neighbors: int,
    batch_size: int,
) -> Affinity:
    """Return the graph that shows which rows should share a batch: of mined lists if there are no
    vectors, else of ``lists`` of neighbours, int64 (N, k) each; raises ResourceError."""
    temperature, ceilings = objective.temperature, objective.guard.ceilings
    if objective.lists is not None:
        return listed_affinity(
            objective.lists, runtime, neighbors=neighbors, batch_size=batch_size,
            temperature=temperature, ceilings=ceilings,
        )  # fmt: skip
    return affinity_graph(
        lists, objective.x, objective.y, runtime, batch_size=batch_size, temperature=temperature,
        negatives=objective.negatives, missing=objective.missing, ceilings=ceilings,
    )  # fmt: skip


def require_rows_fit(embeddings: Embeddings, guard: Guard, runtime: Runtime) -> None:
    """Require memory for the rows of an objective; raises ResourceError."""
    n, d = embeddings.x.shape
    need = 4 * n * d * len(embeddings.matrices) + (64 << 20)
    if (reference := guard.reference) is not None:
        need += 4 * n * reference.dim * (1 + reference.paired)
    runtime.require_memory(need, f"refinement: {n} rows of {d} dimensions", IN_PARTS)
