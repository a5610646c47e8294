"""The pairs of rows that an evaluation compares, and which of them a guard allows."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.duplicates import document_codes
from batchplan.data.reference import load_reference
from batchplan.errors import InputError
from batchplan.quality.guard.rule import Guard, make_guard
from batchplan.quality.mined import Mined
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.rows import MeasuredRows
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_LARGEST_LOGIT = 1e37  # float32 ends at 3e38


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of N rows.

    Attributes:
        x, y: the two sides; the same object if the data is one matrix.
        mined: mined negatives, which anchors meet from x to y.
        temperature: tau.
        bound: the largest possible abs(x_i . y_j).
        guard: which pairs are likely false negatives; None allows all.
    """

    x: MeasuredRows
    y: MeasuredRows
    mined: Mined
    temperature: float
    bound: float
    guard: Guard | None = None

    @property
    def num_rows(self) -> int:
        return self.x.num_rows

    @property
    def alike(self) -> bool:
        """Whether both directions are the same: one matrix without mined negatives."""
        return self.y is self.x and not self.mined

    def unguarded(self) -> "Pairs":
        """Return the same pairs without the guard."""
        return replace(self, guard=None)


def unguarded_pairs(
    embeddings: Embeddings, similarity: str, temperature: float, runtime: Runtime
) -> Pairs:
    """Return the pairs of rows of the data, all of them allowed.

    Raises:
        InputError: as `Embeddings.require_similarities`, or inner products over the temperature
            that float32 cannot hold.
    """
    device = runtime.torch_device()
    cosine = similarity == "cosine"
    embeddings.require_similarities(similarity)
    size = 4 * embeddings.num_rows * embeddings.dim * len(embeddings.matrices)
    hold = size <= runtime.memory_left(device) // 2
    x = MeasuredRows(embeddings.x, cosine, device, hold)
    y = MeasuredRows(embeddings.y, cosine, device, hold) if embeddings.paired else x
    negatives = tuple(MeasuredRows(matrix, cosine, device, hold) for matrix in embeddings.negatives)
    bound = 1.0 if cosine else x.longest() * max(side.longest() for side in (y, *negatives))
    if bound / temperature > _LARGEST_LOGIT:
        raise InputError(
            f"similarity dot: inner products may reach {bound:.3g}; divided by the temperature "
            f"{temperature:g}, that exceeds float32. Use similarity cosine or scale the embeddings "
            "down"
        )
    missing = embeddings.missing
    if missing is None:
        missing = np.zeros((len(negatives), embeddings.num_rows), np.bool_)
    documents = np.empty((0, embeddings.num_rows), np.int64)
    if negatives:
        documents = document_codes([embeddings.y, *embeddings.negatives])
    tensors = (torch.from_numpy(of).to(device) for of in (missing, documents))
    return Pairs(x, y, Mined(negatives, *tensors), temperature, bound)


def guarded_pairs(
    embeddings: Embeddings,
    options: EvaluationOptions,
    groups: Int64Array | None,
    runtime: Runtime,
    rows: Int64Array | None = None,
) -> tuple[Pairs, str | None]:
    """Return the pairs with the guard of the options, and the fingerprint of the reference.

    Args:
        groups: int64 (N,); rows of a group break the guard. -1 for none.
        rows: int64 (m,), the rows to take from the data, the reference and the groups; None for
            all.

    Raises:
        InputError: as `unguarded_pairs` and `load_reference`.
    """
    reference = load_reference(options, embeddings, runtime)
    fingerprint = None if reference is None else reference.fingerprint
    if rows is not None:
        embeddings = embeddings.take(rows)
        reference = reference and reference.take(rows)
        groups = None if groups is None else groups[rows]
    settings = options.similarity, options.temperature, runtime
    pairs = unguarded_pairs(embeddings, *settings)
    if not options.limited and groups is None:
        return pairs, fingerprint
    other = None if reference is None else unguarded_pairs(reference, *settings)
    judge = pairs if other is None else other
    guard = make_guard(
        embeddings, options, groups, pairs.mined, (judge.x, judge.y, judge.bound), other is None,
        runtime,
    )  # fmt: skip
    return replace(pairs, guard=guard), fingerprint
