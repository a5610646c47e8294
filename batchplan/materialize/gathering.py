"""Puts rows into another order in bounded memory: an external sort with known places.

Rows are read once, in their own order, until memory is full. If all of them fit, the output is
taken from memory. Otherwise the rows in memory are sorted into the order of the output and written
to a file, a *run*. The output is then merged from all runs, each read from start to end. So data of
any size is read once, written to disk once and read back once, never row by row at random.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchplan.errors import OutputError
from batchplan.files.atomic import output_errors
from batchplan.runtime import format_bytes
from batchplan.typing import Int64Array

_WINDOW_BYTES = 16 << 20  # of rows that are sorted at once


@dataclass
class Ordered:
    """The rows of a data set in another order.

    Attributes:
        order: int64 (num_entries,), row numbers. Each may occur any number of times.
        folder: an empty folder for runs.
        room: bytes of rows that may be held.
        window: bytes of rows that are sorted at once.
        group: how many rows belong together, and are yielded in the same batch.
        read: bytes of all rows, decoded.
        temporary: bytes of all runs.
    """

    order: Int64Array
    folder: Path
    room: int
    window: int = _WINDOW_BYTES
    group: int = 1
    read: int = 0
    temporary: int = 0
    _held: "_Held" = field(default_factory=lambda: _Held(0))
    _runs: list["_Run"] = field(default_factory=list)  # none if all rows are held
    _rows_at_once: int = 1

    def fill(
        self,
        batches: Iterable[pa.RecordBatch],
        note: Callable[[int], None],
        advance: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """Read all rows.

        Args:
            batches: the rows in their own order.
            note: called with the estimated bytes of all runs, before the first is written.
            advance: called with the number of rows of each batch.

        Raises:
            OutputError: the disk has less space than that, or a run could not be written.
        """
        for batch in batches:
            if self._held.size and self._held.size + batch.nbytes > self.room:
                if not self._runs:
                    self._announce(note)
                self._spill()
            self._held.add(batch)
            self.read += batch.nbytes
            advance(len(batch))
        if self._runs:
            self._spill()
        rows = self.window * self._held.stop // max(1, self.read)
        self._rows_at_once = max(1, rows // self.group) * self.group

    def between(self, start: int, stop: int) -> Iterator[tuple[pa.RecordBatch, Int64Array]]:
        """Yield the rows at these places of the order, some megabytes at a time, and their
        numbers."""
        for begin in range(start, stop, self._rows_at_once):
            end = min(begin + self._rows_at_once, stop)
            numbers = self.order[begin:end]
            if not self._runs:
                yield self._held.rows(numbers), numbers
                continue
            parts = [run.between(begin, end) for run in self._runs]
            batch = _joined([batch for _, batches in parts for batch in batches])
            places = np.concatenate([places for places, _ in parts])
            yield batch.take(pa.array(np.argsort(places))), numbers

    def _announce(self, note: Callable[[int], None]) -> None:
        """Estimate the disk space of all runs from the first one, and require it."""
        need = self._held.size * len(self.order) // self._held.stop
        note(need)
        free = shutil.disk_usage(self.folder).free
        if need > free:
            raise OutputError(
                f"{self.folder.parent}: has {format_bytes(free)} of space, expected about "
                f"{format_bytes(need)} to sort the rows; free some, name fewer columns with "
                "--column, raise --memory, or write elsewhere"
            )

    def _spill(self) -> None:
        """Write the held rows as a run."""
        held = self._held
        places = np.flatnonzero((self.order >= held.start) & (self.order < held.stop))
        path = self.folder / f"{len(self._runs):06d}.arrow"
        block = max(1, self.window * (held.stop - held.start) // max(1, held.size))
        with output_errors(path):
            with path.open("xb") as stream, pa.ipc.new_file(stream, held.batches[0].schema) as file:
                for start in range(0, len(places), block):
                    file.write_batch(held.rows(self.order[places[start : start + block]]))
            self.temporary += path.stat().st_size
        self._runs.append(_Run(places, pa.ipc.open_file(pa.memory_map(str(path))), block))
        self._held = _Held(held.stop)


class _Held:
    """The rows from ``start`` to ``stop`` in memory; ``size`` is in bytes."""

    def __init__(self, start: int) -> None:
        self.start = self.stop = start
        self.size = 0
        self.batches: list[pa.RecordBatch] = []
        self._starts: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self._starts.append(self.stop)
        self.stop += len(batch)
        self.size += batch.nbytes

    def rows(self, rows: Int64Array) -> pa.RecordBatch:
        """Return these rows, in this order."""
        which = np.searchsorted(self._starts, rows, side="right") - 1
        by_batch = np.argsort(which, kind="stable")
        parts = []
        for group in np.split(by_batch, np.flatnonzero(np.diff(which[by_batch])) + 1):
            number = which[group[0]]
            inside = rows[group] - self._starts[number]
            parts.append(self.batches[number].take(pa.array(inside)))
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(rows), np.int64)
        back[by_batch] = np.arange(len(rows))
        return _joined(parts).take(pa.array(back))


@dataclass(frozen=True)
class _Run:
    """Some rows in a file, in the order of the output, ``block`` in each batch."""

    places: Int64Array
    file: Any
    block: int

    def between(self, begin: int, end: int) -> tuple[Int64Array, list[pa.RecordBatch]]:
        """Return which places from ``begin`` to ``end`` this run has, and their rows."""
        first, last = np.searchsorted(self.places, (begin, end)).tolist()
        rows = []
        for number in range(first // self.block, -(-last // self.block)):
            start = number * self.block
            batch = self.file.get_batch(number)
            rows.append(batch.slice(max(first - start, 0), last - max(first, start)))
        return self.places[first:last], rows


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch with the rows of all."""
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch
