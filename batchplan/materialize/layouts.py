"""From a plan to the rows of each shard.

A streaming loader reads rows in the order of the files and cuts them every B rows, so that order
must be the plan's. With several devices or workers, each reads its own stream; a layout says which
rows it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from batchplan.errors import InputError
from batchplan.materialize.options import Layout
from batchplan.plans import Plan
from batchplan.plans.steps import share_offsets
from batchplan.typing import Int64Array


class Folder(NamedTuple):
    """The shards of a folder, in the order in which they are read.

    Attributes:
        name: below the data set's own folder; empty if it is that folder.
        shards: int64 row numbers of the data, in the order of each shard's rows.
    """

    name: str
    shards: list[Int64Array]


@dataclass(frozen=True)
class Parts:
    """The rows of each device in each step.

    Attributes:
        rows: int64 (num_entries,), row numbers by step, then by device.
        starts, sizes: int64 (num_steps, world_size), the start in ``rows`` and the number of rows
            of each device's part.
    """

    rows: Int64Array
    starts: Int64Array
    sizes: Int64Array

    @classmethod
    def of(cls, plan: Plan) -> Parts:
        """The parts of a plan: its batches, or under the scope ``global`` shares of them."""
        world_size = plan.metadata.world_size
        starts, sizes = plan.batch_offsets[:-1], np.diff(plan.batch_offsets)
        if plan.metadata.scope == "device":
            return cls(plan.rows, starts.reshape(-1, world_size), sizes.reshape(-1, world_size))
        # Shares depend only on the size of a batch, and few sizes occur.
        distinct, which = np.unique(sizes, return_inverse=True)
        offsets = np.array([share_offsets(int(size), world_size) for size in distinct])[which]
        return cls(plan.rows, starts[:, None] + offsets[:, :-1], np.diff(offsets, axis=1))

    @property
    def world_size(self) -> int:
        """Number of devices."""
        return int(self.sizes.shape[1])

    def taken(self, parts: Int64Array) -> Int64Array:
        """The rows of these parts, concatenated; parts are indices of ``sizes.ravel()``."""
        sizes = self.sizes.ravel()[parts]
        ends = np.cumsum(sizes)
        index = np.arange(ends[-1]) + np.repeat(self.starts.ravel()[parts] - ends + sizes, sizes)
        taken: Int64Array = self.rows[index]
        return taken


def lay_out(plan: Plan, layout: Layout, *, workers: int = 1, shard_rows: int) -> list[Folder]:
    """The folders of a data set in the order of a plan for W devices.

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
        workers: K; loaders take a batch from each worker in turn, so worker k reads batches k,
            k + K, and so on. Under ``order`` and ``ranks`` shard s is for worker s mod K; under
            ``rank-major`` the rows of one worker follow those of another; ``strided`` has none.
        shard_rows: the most rows of a shard, rounded down to whole batches, but at least one batch.

    Raises:
        InputError: workers under ``strided``, or more workers than batches; or a loader that cuts
            every B rows would miss the batches: a batch before the last of its stream is short, or
            devices have unequal parts where they must be equal.
    """
    parts = Parts.of(plan)
    if workers > 1 and layout == "strided":
        raise InputError(
            f"workers: got {workers} with layout strided, expected 1; its loaders deal batches to "
            "any number of workers themselves"
        )
    if layout == "strided":
        return [Folder("", _strided(parts, shard_rows))]
    numbers = np.arange(parts.sizes.size).reshape(parts.sizes.shape)
    if layout == "order":
        return [
            Folder("", _alternating(parts, _dealt(parts, numbers.ravel(), "", workers), shard_rows))
        ]
    devices = [_dealt(parts, own, f"rank {rank}, ", workers) for rank, own in enumerate(numbers.T)]
    if layout == "ranks":
        return [
            Folder(f"rank-{rank}", _alternating(parts, streams, shard_rows))
            for rank, streams in enumerate(devices)
        ]
    _require_equal(parts.sizes.sum(0, keepdims=True), layout)
    streams = [stream for device in devices for stream in device]
    return [
        Folder(
            "", [shard for stream in streams for shard in _alternating(parts, [stream], shard_rows)]
        )
    ]


def _dealt(parts: Parts, numbers: Int64Array, whose: str, workers: int) -> list[Int64Array]:
    """The parts of each worker, from the parts of a stream."""
    if workers > len(numbers):
        raise InputError(
            f"workers: got {workers}, expected at most {len(numbers)}, the number of batches that "
            "a device has"
        )
    sizes = parts.sizes.ravel()[numbers]
    for worker in range(workers):
        _require_full(sizes[worker::workers], sizes.max(), whose, worker, workers)
    return [numbers[worker::workers] for worker in range(workers)]


def _alternating(parts: Parts, streams: list[Int64Array], shard_rows: int) -> list[Int64Array]:
    """Shards with some parts of each stream in turn."""
    size = int(parts.sizes.ravel()[streams[0]].max())
    count = max(1, shard_rows // size)
    return [
        parts.taken(stream[start : start + count])
        for start in range(0, len(streams[0]), count)
        for stream in streams
        if start < len(stream)
    ]


def _strided(parts: Parts, shard_rows: int) -> list[Int64Array]:
    """The shards of the layout ``strided``."""
    _require_equal(parts.sizes, "strided")
    sizes = parts.sizes[:, 0]
    _require_full(sizes, sizes[0], "", 0, 1)
    index = np.concatenate(
        [
            (starts[:, None, :] + np.arange(size)[:, None]).ravel()
            for starts, size in ((parts.starts[:-1], sizes[0]), (parts.starts[-1:], sizes[-1]))
        ]
    )
    step = int(sizes[0]) * parts.world_size
    length = step * max(1, shard_rows // step)
    ordered = parts.rows[index]
    return [ordered[start : start + length] for start in range(0, len(ordered), length)]


def _require_full(sizes: Int64Array, size: int, whose: str, worker: int, workers: int) -> None:
    """Require that cuts every ``size`` rows give the parts: only the last may be shorter."""
    short = np.flatnonzero(sizes[:-1] != size)
    if short.size:
        number = int(short[0])
        raise InputError(
            f"plan: {whose}batch {worker + number * workers} has {sizes[number]} rows and is not "
            f"the last of its stream, expected {size}, since streaming loaders cut every {size} "
            "rows; plan again with --tail drop or --tail pad, or use --layout ranks"
        )


def _require_equal(sizes: Int64Array, layout: str) -> None:
    """Require equal numbers of rows for all devices, in each line of ``sizes``."""
    uneven = np.flatnonzero((sizes != sizes[:, :1]).any(1))
    if uneven.size:
        line = sizes[uneven[0]]
        where = f"step {uneven[0]}" if len(sizes) > 1 else "all"
        raise InputError(
            f"plan: its batches cannot be split for layout {layout}: in {where}, {len(line)} "
            f"devices have {line.max()} to {line.min()} rows, expected equal parts; plan again "
            "with --tail drop or --tail pad, or use --layout ranks"
        )
