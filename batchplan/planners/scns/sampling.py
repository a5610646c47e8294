"""Draws distinct negatives for each row of `scns`, by the probabilities of rows or classes."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchplan.graph import Neighbors
from batchplan.kernels import njit
from batchplan.planners.common.anchors import require_enough
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_BLOCK = 1 << 15
_TRIES = 32  # rejected draws from a class before listing its allowed rows


Draws: TypeAlias = tuple[Int64Array, NDArray[np.float32]]
"""The negatives of each row, (N, C), in the order of drawing, -1 if there are no more; and the
probability of each in a single draw."""


def draw_rows(
    nearest: Neighbors,
    temperature: float,
    count: int,
    generator: np.random.Generator,
    runtime: Runtime,
) -> Draws:
    """``count`` neighbours of each row, drawn by the softmax of similarity / temperature.

    Draws are without replacement: each has the same probabilities, among the rows that are left.
    That is the order of the logarithms with Gumbel noise added.
    """
    n = len(nearest.indices)
    rows, probabilities = np.empty((n, count), np.int64), np.empty((n, count), np.float32)
    with runtime.stage("draw", n) as advance:
        for start in range(0, n, _BLOCK):
            block = slice(start, start + _BLOCK)
            logits = nearest.similarities[block].astype(np.float64) / temperature
            logits -= logits[:, :1]  # the largest, so that exp cannot overflow
            share = np.exp(logits)
            share /= share.sum(axis=1, keepdims=True)
            keys = logits + generator.gumbel(size=logits.shape)
            order = np.argsort(-keys, axis=1, kind="stable")[:, :count]
            rows[block] = np.take_along_axis(nearest.indices[block], order, axis=1)
            probabilities[block] = np.take_along_axis(share, order, axis=1)
            advance(len(logits))
    return rows, probabilities


def draw_from_classes(
    labels: Int64Array,
    groups: Int64Array | None,
    neighbors: Int64Array,
    probabilities: NDArray[np.float64],
    counts: tuple[int, int],
    generator: np.random.Generator,
    runtime: Runtime,
) -> Draws:
    """Distinct rows for each anchor: draw a class near its own, then a random row of that class.

    If the row is in the group of the anchor, or was drawn before, another is drawn from the same
    class. A class without rows left gives its probability to the others.

    Args:
        labels: int64 (N,) codes of classes, from 0.
        groups: int64 (N,) codes of groups, -1 for none, or None.
        neighbors: int64 (classes, k), the classes that rows of a class draw from.
        probabilities: float64 (classes, k), of these.
        counts: the smallest and largest number of negatives per row.

    Raises:
        InputError: a row with fewer rows to draw from than the smallest number.
    """
    n = len(labels)
    members = np.argsort(labels, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(labels, minlength=len(neighbors)))))
    none = np.full(n, -1, np.int64)
    rows = np.empty((n, counts[1]), np.int64)
    drawn = np.empty((n, counts[1]), np.float32)
    with runtime.stage("draw", n) as advance:
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            _draw(
                start, labels, none if groups is None else groups, neighbors, probabilities,
                members, starts, generator, rows[start:stop], drawn[start:stop],
            )  # fmt: skip
            advance(stop - start)
    require_enough((rows >= 0).sum(axis=1), counts[0])
    return rows, drawn


@njit
def _draw(  # type: ignore[no-untyped-def]
    first, labels, groups, neighbors, probabilities, members, starts, generator, rows, drawn
):
    for at in range(len(rows)):
        anchor = first + at
        near = neighbors[labels[anchor]]
        weights = probabilities[labels[anchor]].copy()
        filled = 0
        while filled < rows.shape[1]:
            pick = _pick(weights, generator)
            if pick < 0:
                break
            begin, end = starts[near[pick]], starts[near[pick] + 1]
            row = _row(anchor, groups, members[begin:end], rows[at, :filled], generator)
            if row < 0:
                weights[pick] = 0.0
                continue
            rows[at, filled] = row
            drawn[at, filled] = probabilities[labels[anchor], pick] / (end - begin)
            filled += 1
        rows[at, filled:] = -1
        drawn[at, filled:] = 0


@njit
def _pick(weights, generator):  # type: ignore[no-untyped-def]
    """A place drawn by its weight; -1 if all weights are 0."""
    total = weights.sum()
    if total <= 0:
        return -1
    target, last = generator.random() * total, -1
    for place in range(len(weights)):
        if weights[place] > 0:
            last = place
            target -= weights[place]
            if target < 0:
                break
    return last


@njit
def _row(anchor, groups, members, before, generator):  # type: ignore[no-untyped-def]
    """A row of a class, drawn uniformly from those allowed; -1 if there is none."""
    for _ in range(_TRIES):
        row = members[int(generator.random() * len(members))]
        if _allowed(anchor, row, groups, before):
            return row
    left = [row for row in members if _allowed(anchor, row, groups, before)]
    return left[int(generator.random() * len(left))] if left else -1


@njit
def _allowed(anchor, row, groups, before):  # type: ignore[no-untyped-def]
    if groups[anchor] >= 0 and groups[anchor] == groups[row]:
        return False
    for other in before:  # noqa: SIM110  (numba knows no generator expressions)
        if other == row:
            return False
    return True
