"""Strips of rows against all keys: lists and scores the pairs that may reach a limit.

Strips are dealt to the devices and return in the order of rows. The candidates of a strip depend on
its rows and limits alone, so results do not depend on the number of devices or the height of
strips.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch

from batchplan.data import Embeddings, RowMatrix
from batchplan.data.rows import load_rows, mean_row
from batchplan.graph.cuda import kernels
from batchplan.graph.cuda.operands import DeviceKeys, keys_from, queries_from
from batchplan.threads import dealt, in_order

HEIGHT = 2048  # rows of a strip: enough that keys are rarely read from memory
_LISTED = 1 << 22  # pairs listed and scored at a time; some 60 bytes each
_KEPT = 4 * _LISTED  # pairs after which a strip ends early
_WORKERS = 2  # threads per device
_ROWS_AT_ONCE = 1 << 12  # of a host matrix, that a thread loads


@dataclass(frozen=True, eq=False)
class Hits:
    """Pairs of rows ``start`` to ``stop``, by row, then by column: int32 rows and columns, and
    float32 scores."""

    start: int
    stop: int
    rows: torch.Tensor
    columns: torch.Tensor
    scores: torch.Tensor


@dataclass(frozen=True, eq=False)
class Limits:
    """A pair (i, j) counts if its score reaches ``rows[i]`` or ``columns[j]``; float32 (N,)."""

    rows: torch.Tensor
    columns: torch.Tensor


@dataclass(frozen=True, eq=False)
class DeviceSides:
    """Both sides of the data on some devices.

    Attributes:
        embeddings: N pairs of d dimensions.
        normalize: whether rows get unit length.
        keys: the rows of y, for each worker on its device.
        x: the rows of x, float32 (N, d), for each worker; empty if they are loaded when needed.
    """

    embeddings: Embeddings
    normalize: bool
    keys: list[DeviceKeys]
    x: list[torch.Tensor]

    @property
    def device(self) -> torch.device:
        """The device that collects results."""
        return self.keys[0].rows.device

    def queries(self, worker: int, start: int, stop: int) -> torch.Tensor:
        """float32 (stop - start, d): rows of x on the device of a worker."""
        if self.x:
            return self.x[worker][start:stop]
        keys = self.keys[worker].rows
        if not self.embeddings.paired:
            return keys[start:stop]
        return load_rows(self.embeddings.x, start, stop, keys.device, self.normalize)


def sides_of(
    embeddings: Embeddings,
    devices: list[torch.device],
    dtype: torch.dtype,
    normalize: bool,
    keep_x: bool,
    advance: Callable[[int], None],
) -> DeviceSides:
    """Load and round the rows of y, and load the rows of x if they are kept.

    Args:
        embeddings: N pairs of d dimensions.
        devices: the first loads the rows, and others copy them. Each has two workers: one prepares
            a strip while the other's runs.
        dtype: the screening type.
        normalize: give rows unit length.
        keep_x: keep the rows of x on all devices, if x is not y.
        advance: called with the number of rows loaded, 2 N in total.
    """
    n = embeddings.num_rows
    y = _load(embeddings.y, devices[0], normalize, advance)
    key_mean = query_mean = _mean(y)
    x = None
    if embeddings.paired and keep_x:
        x = _load(embeddings.x, devices[0], normalize, advance)
        query_mean = _mean(x)
    elif embeddings.paired:
        query_mean = mean_row(embeddings.x, devices[0], normalize, advance)
    else:
        advance(n)
    keys = keys_from(y, query_mean, key_mean, dtype)
    all_keys = [keys.to(device) for device in devices]
    all_x = [] if x is None else [x.to(device) for device in devices]
    return DeviceSides(embeddings, normalize, _WORKERS * all_keys, _WORKERS * all_x)


def _load(
    matrix: RowMatrix, device: torch.device, normalize: bool, advance: Callable[[int], None]
) -> torch.Tensor:
    n = matrix.shape[0]
    rows = torch.empty(matrix.shape, device=device)

    def work(start: int) -> int:
        stop = min(start + _ROWS_AT_ONCE, n)
        rows[start:stop] = load_rows(matrix, start, stop, device, normalize)
        return stop - start

    for done in in_order(work, range(0, n, _ROWS_AT_ONCE)):
        advance(done)
    return rows


def _mean(rows: torch.Tensor) -> torch.Tensor:
    sums = [part.sum(0, dtype=torch.float64) for part in torch.split(rows, _ROWS_AT_ONCE)]
    return (torch.stack(sums).sum(0) / len(rows)).float()


def strip_of(
    sides: DeviceSides, worker: int, start: int, stop: int, limits: Limits, half: bool = False
) -> Hits:
    """All pairs of some rows, i != j, that reach a limit.

    Args:
        sides: the data.
        worker: the worker, whose device is used.
        start, stop: the rows.
        limits: for all rows and columns, on that device.
        half: only pairs of i < j.

    Returns:
        The pairs. If they far exceed the memory of a strip, only pairs of the first rows, at least
        one, before the ``stop`` of the result.
    """
    keys = sides.keys[worker]
    queries = queries_from(sides.queries(worker, start, stop), keys)
    width = kernels.tile_of(keys.rounded.dtype).columns
    first_tile = start // width if half else 0
    first_column = first_tile * width
    of_rows = limits.rows[start:stop]
    words = kernels.screen(
        queries.rounded,
        keys.rounded,
        (queries.terms, keys.terms),
        (queries.padded(of_rows), keys.padded(limits.columns)),
        first_tile,
    )
    own = torch.arange(start, stop, device=words.device) - first_column
    row = torch.arange(stop - start, device=words.device)
    words[row, own >> 5] &= ~(1 << (own & 31)).to(torch.int32)
    ends = kernels.count(words, stop - start).cumsum(0).cpu()
    pieces: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    done = kept = 0
    while done < stop - start and kept < _KEPT:
        before = int(ends[done - 1]) if done else 0
        until = int(torch.searchsorted(ends, before + _LISTED, right=True))
        some = slice(done, max(until, done + 1))
        counts = ends[some].diff(prepend=torch.tensor([before])).to(words.device)
        rows, columns = kernels.list_pairs(words[some], counts, start + done, first_column)
        if half:
            above = columns > rows
            rows, columns = rows[above], columns[above]
        scores = kernels.score(queries.rows, keys.rows, rows, columns, start)
        limit = torch.minimum(of_rows[rows - start], limits.columns[columns])
        reached = scores >= limit
        pieces.append((rows[reached], columns[reached], scores[reached]))
        kept += len(pieces[-1][0])
        done = some.stop
    rows, columns, scores = (torch.cat(part) for part in zip(*pieces, strict=True))
    return Hits(start, start + done, rows, columns, scores)


def strips(
    sides: DeviceSides,
    limits: Callable[[int], Limits],
    expected: float,
    half: bool = False,
) -> Generator[Hits, None, None]:
    """`strip_of` all rows in their order, computed on all devices.

    Args:
        sides: the data.
        limits: called with a worker when it begins a strip; limits may rise between strips.
        expected: guess of the pairs per row, which sets the height of strips.
        half: only pairs of i < j.

    Yields:
        The pairs of consecutive rows, on the device where they were computed.
    """
    n = sides.embeddings.num_rows
    height = _height(n, len(sides.keys), expected)

    def work(worker: int, start: int) -> Hits:
        return strip_of(sides, worker, start, min(start + height, n), limits(worker), half)

    for index, pairs in enumerate(dealt(work, range(0, n, height), len(sides.keys))):
        yield pairs
        worker, stop = index % len(sides.keys), min(pairs.start + height, n)
        while pairs.stop < stop:
            pairs = strip_of(sides, worker, pairs.stop, stop, limits(worker), half)
            yield pairs


def _height(rows: int, workers: int, expected: float) -> int:
    """Rows of a strip: whole tiles, few enough for its memory and to keep all workers busy."""
    most = min(HEIGHT, _LISTED / (2 * expected + 1), rows / (2 * workers))
    whole = 128
    return max(whole, int(most) // whole * whole)
