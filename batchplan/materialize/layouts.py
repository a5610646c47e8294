"""Chooses the rows of each shard.

A streaming loader reads rows in the order of the files and cuts them every B rows, so the files
must have the order of the plan. With several devices or workers, each reads its own stream, and a
layout says which rows the stream has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from batchplan.errors import InputError
from batchplan.materialize.options import Layout
from batchplan.plans import Plan
from batchplan.plans.steps import share_offsets, take_batches
from batchplan.typing import Int64Array


class Folder(NamedTuple):
    """The shards of a folder, in reading order.

    Attributes:
        name: of the folder, below that of the data set; empty for that folder itself.
        shards: for each shard int64 (n,), the row numbers of its rows, in order.
    """

    name: str
    shards: list[Int64Array]


@dataclass(frozen=True)
class DeviceParts:
    """The rows of each device in each step: a batch, or with the scope ``global`` its share of one.

    Attributes:
        rows: int64 (num_entries,), row numbers by step, then by device.
        offsets: int64 (num_steps * world_size + 1,), where each part begins in ``rows``; the end.
        sizes: int64 (num_steps, world_size), the rows of each part.
    """

    rows: Int64Array
    offsets: Int64Array
    sizes: Int64Array

    @classmethod
    def of(cls, plan: Plan) -> DeviceParts:
        """The parts of a plan."""
        offsets, world_size = plan.batch_offsets, plan.metadata.world_size
        if plan.metadata.scope == "global":
            shares = share_offsets(np.diff(offsets)[:, None], world_size)
            offsets = np.append(0, (offsets[:-1, None] + shares[:, 1:]).ravel())
        return cls(plan.rows, offsets, np.diff(offsets).reshape(-1, world_size))

    def taken(self, parts: Int64Array) -> Int64Array:
        """Concatenate the rows of these parts, which are numbered by step, then by device."""
        return take_batches(self.rows, self.offsets, parts)[0]


def lay_out(plan: Plan, layout: Layout, *, workers: int = 1, shard_rows: int) -> list[Folder]:
    """Return the folders of a data set in the order of a plan for W devices.

    Layouts:
        order: the parts of all devices step after step, in one folder.
        strided: in each step, row j of devices 0 to W - 1, then row j + 1; for loaders that give
            row i to device i mod W.
        rank-major: all rows of device 0, then those of device 1; for loaders that give each device
            a contiguous part of equal length, and each of its workers a contiguous part of that.
        ranks: a folder for each device.

    Args:
        plan: the plan.
        layout: one of those above.
        workers: K. Loaders take a batch from each worker in turn, so worker k reads batches k,
            k + K, and so on. Under ``order`` and ``ranks``, shard s is for worker s mod K. Under
            ``rank-major``, the rows of one worker follow those of another.
        shard_rows: the most rows of a shard, rounded down to whole batches, but at least one batch.

    Raises:
        InputError: several workers under ``strided``, or more workers than batches; or cuts every B
            rows would not give the batches, because a batch before the last of its stream is short,
            or because devices have unequal parts where the layout needs equal ones.
    """
    parts = DeviceParts.of(plan)
    if layout == "strided":
        if workers > 1:
            raise InputError(
                f"workers: got {workers} with layout strided, expected 1; its loaders deal batches "
                "to any number of workers themselves"
            )
        return [Folder("", _strided(parts, shard_rows))]
    numbers = np.arange(parts.sizes.size).reshape(parts.sizes.shape)
    if layout == "order":
        streams = _dealt(parts, numbers.ravel(), "", workers)
        return [Folder("", _alternating(parts, streams, shard_rows))]
    devices = [_dealt(parts, own, f"rank {rank}, ", workers) for rank, own in enumerate(numbers.T)]
    if layout == "ranks":
        return [
            Folder(f"rank-{rank}", _alternating(parts, streams, shard_rows))
            for rank, streams in enumerate(devices)
        ]
    _require_equal(parts.sizes.sum(0, keepdims=True), layout)
    shards = (_alternating(parts, [stream], shard_rows) for own in devices for stream in own)
    return [Folder("", [shard for of_stream in shards for shard in of_stream])]


def _dealt(parts: DeviceParts, numbers: Int64Array, whose: str, workers: int) -> list[Int64Array]:
    """Deal the parts of a stream to workers: the numbers of the parts of each."""
    if workers > len(numbers):
        raise InputError(
            f"workers: got {workers}, expected at most {len(numbers)}, the number of batches that "
            "a device has"
        )
    sizes = parts.sizes.ravel()[numbers]
    for worker in range(workers):
        _require_full(sizes[worker::workers], sizes.max(), whose, worker, workers)
    return [numbers[worker::workers] for worker in range(workers)]


def _alternating(
    parts: DeviceParts, streams: list[Int64Array], shard_rows: int
) -> list[Int64Array]:
    """Cut streams into shards: one of each stream in turn."""
    size = int(parts.sizes.ravel()[streams[0]].max())
    count = max(1, shard_rows // size)
    return [
        parts.taken(stream[start : start + count])
        for start in range(0, len(streams[0]), count)
        for stream in streams
        if start < len(stream)
    ]


def _strided(parts: DeviceParts, shard_rows: int) -> list[Int64Array]:
    """The shards of the layout ``strided``."""
    _require_equal(parts.sizes, "strided")
    sizes, world_size = parts.sizes[:, 0], parts.sizes.shape[1]
    _require_full(sizes, sizes[0], "", 0, 1)
    step = int(sizes[0]) * world_size
    first, last = np.split(parts.rows, [step * (len(sizes) - 1)])
    ordered = np.concatenate(
        [
            first.reshape(-1, world_size, sizes[0]).transpose(0, 2, 1).ravel(),
            last.reshape(world_size, -1).T.ravel(),
        ]
    )
    length = step * max(1, shard_rows // step)
    return [ordered[start : start + length] for start in range(0, len(ordered), length)]


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
