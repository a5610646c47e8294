"""Bins of rows for the greedy planners, with contrastive losses that are updated row by row.

The loss of a batch of k rows is the sum, over its rows a and both directions, of

    log sum_b exp(x_a . y_b / tau) - x_a . y_a / tau,

divided by k. A row that joins adds an exponential to each of these sums, and two sums of its own.
So the loss of the bin with the new row needs only the products of that row with the members. Sums
are stored as logarithms, so that they do not overflow at any temperature or row length. Products of
float32 rows are float64, so that their rounding, which depends on tiles, is far below `TIE`.
"""

from concurrent.futures import Executor

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import both_sides
from batchplan.kernels import njit

TIE = 1e-9  # losses that differ by less, relative to the loss or to 1, are equal
_ROWS_AT_ONCE = 512  # rows whose logits are computed together
_MEMBERS_AT_ONCE = 2048  # members in one product with the rows that join them

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Logits:
    """All rows in host memory, and their logits in float64.

    Attributes:
        x, y: float32 (N, d), of unit length under cosine; the same tensor if there is one matrix.
        own: float64 (N,), the logit of each row's own pair.
    """

    def __init__(self, embeddings: Embeddings, similarity: str, temperature: float) -> None:
        self.temperature = temperature
        self.x, self.y = both_sides(embeddings, torch.device("cpu"), similarity == "cosine")
        n = len(self.x)
        self.own: Floats = np.empty(n)
        for start in range(0, n, _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            self.own[block] = (self.x[block].double() * self.y[block].double()).sum(1).numpy()
        self.own /= temperature
        self._kept: list[Floats] = []

    @property
    def paired(self) -> bool:
        """Whether the two directions differ."""
        return self.y is not self.x

    def store(self, pool: Executor) -> None:
        """Compute all `logits` once. They take 16 N^2 bytes, or 8 N^2 for one matrix."""
        n = len(self.own)
        x, y = self.x.double(), self.y.double()
        # A column of `logits` is a row of these.
        sides = [(y, x), (x, y)][: 1 + self.paired]
        self._kept = [np.empty((n, n)) for _ in sides]

        def fill(start: int) -> None:
            block = slice(start, start + _ROWS_AT_ONCE)
            for kept, (rows, columns) in zip(self._kept, sides, strict=True):
                products = torch.mm(rows[block], columns.T, out=torch.from_numpy(kept[block]))
                products.div_(self.temperature)

        list(pool.map(fill, range(0, n, _ROWS_AT_ONCE)))

    def logits(self, rows: Ints, columns: Ints) -> tuple[Floats, Floats]:
        """x_i . y_j / tau and y_i . x_j / tau, each float64 (rows, columns). With one matrix, both
        are the same array."""
        if self._kept:
            both = [kept[np.ix_(columns, rows)].T for kept in self._kept]
            return both[0], both[-1]
        i, j = torch.from_numpy(rows), torch.from_numpy(columns)
        to_y = (self.x[i].double() @ self.y[j].double().T).div_(self.temperature).numpy()
        if not self.paired:
            return to_y, to_y
        return to_y, (self.y[i].double() @ self.x[j].double().T).div_(self.temperature).numpy()


class Bins:
    """Unfinished batches. All that have room have the same number of rows, ``size``.

    Attributes:
        capacities: int64 (bins,), the final number of rows: B, or fewer in the last bin.
        members: int64 (bins, B), the rows of each, in the order in which they joined.
        sums_x, sums_y: float64 (bins, B), for each member a the logarithm of the sum of
            exp(x_a . y_b / tau), or exp(y_a . x_b / tau), over the members b.
        base: float64 (bins,), -2 times the sum of the members' own logits.
        size: rows of each open bin.
    """

    def __init__(self, pairs: Logits, batch_size: int) -> None:
        n = len(pairs.own)
        self.pairs = pairs
        self.capacities = np.diff(np.append(np.arange(0, n, batch_size), n))
        shape = (len(self.capacities), batch_size)
        self.members = np.zeros(shape, np.int64)
        self.sums_x, self.sums_y = np.empty(shape), np.empty(shape)
        self.base = np.zeros(len(self.capacities))
        self.size = 0

    def open(self) -> Ints:
        """Return the bins with room: all but the last, which may be short and full already."""
        return np.flatnonzero(self.capacities > self.size)

    def join(self, indices: Ints, rows: Ints) -> None:
        """Add row ``rows[t]`` to bin ``indices[t]``, for distinct bins. The caller increases
        ``size`` when every open bin has got a row."""
        step = max(1, _MEMBERS_AT_ONCE // max(self.size, 1))
        for start in range(0, len(indices), step):
            block = slice(start, start + step)
            self._join(indices[block], rows[block])

    def _join(self, indices: Ints, rows: Ints) -> None:
        k, pairs = self.size, self.pairs
        own = pairs.own[rows]
        if k:
            i, members = torch.from_numpy(rows), torch.from_numpy(self.members[indices, :k])
            with_x = _products(pairs.y[i], pairs.x[members], pairs.temperature)
            with_y = _products(pairs.x[i], pairs.y[members], pairs.temperature)
            self.sums_x[indices, :k] = np.logaddexp(self.sums_x[indices, :k], with_x)
            self.sums_y[indices, :k] = np.logaddexp(self.sums_y[indices, :k], with_y)
            self.sums_x[indices, k] = np.logaddexp(np.logaddexp.reduce(with_y, axis=1), own)
            self.sums_y[indices, k] = np.logaddexp(np.logaddexp.reduce(with_x, axis=1), own)
        else:
            self.sums_x[indices, 0] = self.sums_y[indices, 0] = own
        self.base[indices] -= 2 * own
        self.members[indices, k] = rows

    def order(self) -> Ints:
        """Return all rows, bin after bin."""
        pieces = zip(self.members, self.capacities, strict=True)
        return np.concatenate([rows[:capacity] for rows, capacity in pieces])


def _products(rows: torch.Tensor, members: torch.Tensor, temperature: float) -> Floats:
    """float64 (T, k): logits of each row, (T, d), and its k members, (T, k, d)."""
    products = torch.bmm(members.double(), rows.double()[:, :, None])[:, :, 0]
    return products.div_(temperature).numpy()


def first_best(losses: Floats) -> int:
    """Return the lowest index of a loss that equals the largest loss up to `TIE`."""
    best = losses.max()
    return int(np.argmax(losses >= best - TIE * max(1.0, abs(best))))


@njit
def _log_add(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    if a < b:
        a, b = b, a
    both: float = a + np.log1p(np.exp(b - a))
    return both


@njit
def losses_of_bins(
    to_y: Floats, to_x: Floats, own: Floats, sums_x: Floats, sums_y: Floats, base: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """The losses of G bins of k members, each with one of T further rows.

    Args:
        to_y, to_x: (T, G k), logits of x_i with the members' y and of y_i with their x.
        own: (T,), own logits.
        sums_x, sums_y, base: (G, k), (G, k) and (G,), of `Bins`.
        out: (T, G), the result.
    """
    groups, k = sums_x.shape
    for i in range(len(own)):
        for g in range(groups):
            first = g * k
            total = base[g] - 2 * own[i]
            largest_y = largest_x = own[i]
            for a in range(k):
                largest_y = max(largest_y, to_y[i, first + a])
                largest_x = max(largest_x, to_x[i, first + a])
            sum_y = np.exp(own[i] - largest_y)
            sum_x = np.exp(own[i] - largest_x)
            for a in range(k):
                y, x = to_y[i, first + a], to_x[i, first + a]
                sum_y += np.exp(y - largest_y)
                sum_x += np.exp(x - largest_x)
                total += _log_add(sums_x[g, a], x) + _log_add(sums_y[g, a], y)
            total += largest_y + np.log(sum_y) + largest_x + np.log(sum_x)
            out[i, g] = total / (k + 1)
