"""The objective of refinement: the training loss over the pairs of rows that count."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import load_all_rows
from batchplan.guard.guard import Guard
from batchplan.refinement.blocks import APART
from batchplan.runtime import IN_PARTS, Runtime

Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Objective:
    """Sum over the rows of all batches, and both directions, of log sum_j exp(s_ij / tau).

    j runs over row i and the rows of its batch that may be its negatives. Pairs that break the
    guard do not count. Fewer pairs of a group, or of equal rows, are better at any loss. Each too
    similar pair costs ``penalty`` nats.

    Attributes:
        x, y: float32 (N, d), of unit length under cosine similarity; y may be x.
        similarity: ``cosine`` or ``dot``.
        temperature: tau.
        guard: which rows to keep apart.
        penalty: nats; `APART` to keep rows apart at any cost.
        window: float32 (2, N), for each row the least similarity that counts and the least that is
            too high; (2, 0) if all count.
        kinds: int64 (N,), only rows of the same kind are exchanged; (0,) if there is one kind.
    """

    x: torch.Tensor
    y: torch.Tensor
    similarity: str
    temperature: float
    guard: Guard
    penalty: float
    window: Float32Array
    kinds: Int64Array

    @property
    def all_count(self) -> bool:
        """Whether any two rows may be negatives of each other."""
        return not self.guard.active and not self.window.shape[1]

    @cached_property
    def codes(self) -> Int64Array:
        """int64 (C, N): rows that share a code of 0 or more in any of them are kept apart."""
        return self.guard.codes()

    @cached_property
    def lengths(self) -> Float32Array:
        """float32 (2, N): the lengths of the rows of x and of y."""
        return torch.stack([side.norm(dim=1) for side in (self.x, self.y)]).cpu().numpy()


def make_objective(
    embeddings: Embeddings,
    runtime: Runtime,
    *,
    similarity: str,
    temperature: float,
    guard: Guard | None = None,
    penalty: float | None = None,
    window: Float32Array | None = None,
    kinds: Int64Array | None = None,
) -> Objective:
    """Load the rows as float32.

    Raises:
        InputError: a zero row under cosine.
        ResourceError: the rows do not fit into the memory budget.
    """
    n, d = embeddings.x.shape
    embeddings.require_similarities(similarity)
    normalize = similarity == "cosine"
    need = 4 * n * d * (2 if embeddings.paired else 1) + (64 << 20)
    what = f"refinement: {n} rows of {d} dimensions"
    runtime.require_memory(need, what, IN_PARTS)
    cpu = torch.device("cpu")
    x = load_all_rows(embeddings.x, cpu, normalize)
    return Objective(
        x=x,
        y=load_all_rows(embeddings.y, cpu, normalize) if embeddings.paired else x,
        similarity=similarity,
        temperature=temperature,
        guard=guard or Guard(),
        penalty=APART if penalty is None else min(penalty, APART),
        window=np.empty((2, 0), np.float32) if window is None else window,
        kinds=np.empty(0, np.int64) if kinds is None else kinds,
    )
