"""Chooses the rows of each shard, which have their numbers in the data too.

A streaming loader reads rows in the order of the files and cuts them every B rows, so the files
must have the order of the plan. With several devices or workers, each reads its own stream, and a
layout says which rows the stream has. Tables of negatives have no order to keep; they become texts
with the column names of sentence-transformers.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import is_text
from batchplan.errors import InputError
from batchplan.materialize.options import Layout, MaterializeOptions
from batchplan.options import ROW_COLUMN
from batchplan.plans import Negatives, Plan
from batchplan.plans.steps import share_offsets, take_batches
from batchplan.typing import Int64Array

_SIDES = ("anchor", "positive")


def lay_out(
    plan: Plan, layout: Layout, *, workers: int = 1, shard_rows: int
) -> dict[str, list[Int64Array]]:
    """Return the shards of a data set in the order of a plan for W devices.

    In each step, a device has a part: a batch, or with the scope ``global`` its share of one.

    Layouts:
        order: the parts of all devices step after step, in one folder.
        strided: in each step, row j of devices 0 to W - 1, then row j + 1; for loaders that give
            row i to device i mod W.
        rank-major: all rows of device 0, then all of device 1; for loaders that give each device
            a contiguous part of equal length, and each of its workers a contiguous part of that.
        ranks: a folder for each device.

    Args:
        plan: the plan.
        layout: one of those above.
        workers: K. Loaders take a batch from each worker in turn, so worker k reads batches k,
            k + K, and so on. Under ``order`` and ``ranks``, shard s is for worker s mod K. Under
            ``rank-major``, the rows of one worker follow the rows of another.
        shard_rows: the most rows of a shard, rounded down to whole batches, but at least one batch.

    Returns:
        By the name of each folder, which is "" for the data set's own: int64 (n,) for each shard,
        the row numbers of its rows, in order.

    Raises:
        InputError: several workers under ``strided``, or more workers than batches; or cuts every B
            rows would not give the batches, because a batch before the last of its stream is short,
            or because devices have unequal parts where the layout needs equal ones.
    """
    rows, offsets, world_size = plan.rows, plan.batch_offsets, plan.metadata.world_size
    if plan.metadata.scope == "global":
        shares = share_offsets(np.diff(offsets)[:, None], world_size)
        offsets = np.append(0, (offsets[:-1, None] + shares[:, 1:]).ravel())
    sizes = np.diff(offsets).reshape(-1, world_size)
    if layout == "strided":
        if workers > 1:
            raise InputError(
                f"workers: got {workers} with layout strided, expected 1; its loaders deal batches "
                "to any number of workers themselves"
            )
        _require_equal(sizes, layout)
        _require_full(sizes[:, 0], sizes[0, 0], "", 0, 1)
        part = np.repeat(np.arange(sizes.size), sizes.ravel())
        place = np.arange(len(rows)) - offsets[part]
        rows = rows[np.lexsort((part % world_size, place, part // world_size))]
        offsets = offsets[::world_size]

    def dealt(parts: Int64Array, whose: str = "") -> list[Int64Array]:
        return _dealt(np.diff(offsets)[parts], parts, whose, workers)

    def cut(streams: list[Int64Array]) -> list[Int64Array]:
        """Cut streams of parts into shards: one of each stream in turn."""
        count = max(1, shard_rows // int(np.diff(offsets)[streams[0]].max()))
        return [
            take_batches(rows, offsets, stream[start : start + count])[0]
            for start in range(0, len(streams[0]), count)
            for stream in streams
            if start < len(stream)
        ]

    if layout in ("order", "strided"):
        return {"": cut(dealt(np.arange(len(offsets) - 1)))}
    numbers = np.arange(sizes.size).reshape(sizes.shape).T
    devices = [dealt(own, f"rank {rank}, ") for rank, own in enumerate(numbers)]
    if layout == "ranks":
        return {f"rank-{rank}": cut(streams) for rank, streams in enumerate(devices)}
    _require_equal(sizes.sum(0, keepdims=True), layout)
    return {"": [shard for own in devices for stream in own for shard in cut([stream])]}


def _dealt(sizes: Int64Array, parts: Int64Array, whose: str, workers: int) -> list[Int64Array]:
    """Deal the parts of a stream, which have these sizes, to workers."""
    if workers > len(parts):
        raise InputError(
            f"workers: got {workers}, expected at most {len(parts)}, the number of batches that "
            "a device has"
        )
    for worker in range(workers):
        _require_full(sizes[worker::workers], sizes.max(), whose, worker, workers)
    return [parts[worker::workers] for worker in range(workers)]


def _require_full(sizes: Int64Array, size: int, whose: str, worker: int, workers: int) -> None:
    """Require that cuts every ``size`` rows give the parts, so that only the last is shorter."""
    short = np.flatnonzero(sizes[:-1] != size)
    if short.size:
        number = int(short[0])
        raise InputError(
            f"plan: {whose}batch {worker + number * workers} has {sizes[number]} rows and is not "
            f"the last of its stream, expected {size}, since streaming loaders cut every {size} "
            "rows; plan again with --tail drop or --tail pad, or use --layout ranks"
        )


def _require_equal(sizes: Int64Array, layout: str) -> None:
    """Require that all devices have as many rows, in each line of ``sizes``."""
    uneven = np.flatnonzero((sizes != sizes[:, :1]).any(1))
    if uneven.size:
        line = sizes[uneven[0]]
        where = f"step {uneven[0]}" if len(sizes) > 1 else "all"
        raise InputError(
            f"plan: its batches cannot be split for layout {layout}: in {where}, {len(line)} "
            f"devices have {line.max()} to {line.min()} rows, expected equal parts; plan again "
            "with --tail drop or --tail pad, or use --layout ranks"
        )


@dataclass(frozen=True)
class InOrder:
    """The rows of a plan in the order of a layout. `Tuples` is the same for a table."""

    layout: Layout
    folders: dict[str, list[Int64Array]]
    group: int = 1

    @classmethod
    def of(cls, plan: Plan, options: MaterializeOptions) -> "InOrder":
        """Lay out the rows of a plan.

        Raises:
            InputError: the batches do not fit the layout.
        """
        layout = options.layout or ("order" if plan.metadata.world_size == 1 else "ranks")
        if layout in ("n-tuple", "triplet"):
            raise InputError(
                f"layout: got {layout} for a plan of batches, expected another; {layout} is for "
                "tables of negatives, as hardneg and scns write"
            )
        folders = lay_out(plan, layout, workers=options.workers, shard_rows=options.shard_rows)
        return cls(layout, folders)

    def read(self, schema: pa.Schema, _where: str) -> pa.Schema:
        """Return the columns to read: all. Raises InputError if a column is named twice."""
        if len(once := set(schema.names)) < len(schema):
            raise InputError(
                f"column: got {len(schema)} names of {len(once)} columns, expected each name once"
            )
        return schema

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Return the columns to write."""
        return read.append(pa.field(ROW_COLUMN, pa.int64(), nullable=False))

    def joined(
        self, rows: pa.RecordBatch, numbers: Int64Array, schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return these rows with their numbers."""
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(numbers)], schema=schema)


@dataclass(frozen=True)
class Tuples:
    """The tuples of a table of n anchors with M negatives each.

    Attributes:
        layout: ``n-tuple``, a row for each anchor with all its negatives; or ``triplet``, M rows.
        folders: a single one; its shards are row numbers of the data, `group` for each tuple.
        group: rows of the data in a tuple: the anchor, then the negatives.
    """

    layout: Layout
    folders: dict[str, list[Int64Array]]
    group: int

    @classmethod
    def of(cls, table: Negatives, options: MaterializeOptions) -> "Tuples":
        """Lay out the tuples of a table.

        Raises:
            InputError: workers, or a layout of plans.
        """
        layout = options.layout or "n-tuple"
        if layout not in ("n-tuple", "triplet") or options.workers > 1:
            raise InputError(
                f"layout: got {layout} with {options.workers} workers for a table of negatives, "
                "expected n-tuple or triplet with 1; its rows have no order to keep"
            )
        rows = np.column_stack([table.anchors, table.negatives])
        if layout == "triplet":
            anchors = np.repeat(table.anchors, table.per_anchor)
            rows = np.column_stack([anchors, table.negatives.ravel()])
        size = options.shard_rows
        shards = [rows[start : start + size].ravel() for start in range(0, len(rows), size)]
        return cls(layout, {"": shards}, rows.shape[1])

    def read(self, schema: pa.Schema, where: str) -> pa.Schema:
        """Return the columns to read: of the anchors, and of positives and negatives.

        Raises:
            InputError: it is unclear which; ``where`` begins the message.
        """
        if len(schema) == 2:
            return schema  # of one column named twice, if each text is its own positive
        texts = [field.name for field in schema if is_text(field.type)]
        names = list(_SIDES) if set(_SIDES) <= set(schema.names) else texts
        if len(names) != 2:
            raise InputError(
                f"{where}: got {len(names)} columns of text ({', '.join(names):.200}), expected 2, "
                "of anchors and of positives; name them in this order with --column, or a single "
                "one twice"
            )
        return pa.schema([schema.field(name) for name in names])

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Return the columns to write."""
        anchor, positive = (field.type for field in read)
        names = ["negative"]
        if self.layout == "n-tuple":
            names = [f"negative_{number}" for number in range(1, self.group)]
        return pa.schema(
            [(_SIDES[0], anchor), (_SIDES[1], positive), *((name, positive) for name in names)]
        )

    def joined(
        self, rows: pa.RecordBatch, numbers: Int64Array, schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return the tuples of these rows, `group` rows for each tuple."""
        anchors, positives = rows.columns
        firsts = np.arange(0, len(numbers), self.group)
        columns = [positives.take(pa.array(firsts + place)) for place in range(self.group)]
        return pa.RecordBatch.from_arrays([anchors.take(pa.array(firsts)), *columns], schema=schema)
