"""Reads what `batchplan.training.Recorder` wrote."""

import os
import re
from bisect import insort
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.reading import open_regular, readable
from batchplan.files.remote import no_url
from batchplan.plans.validation import integers_of
from batchplan.typing import Int64Array

# A verdict has every epoch and step up to the last, and a short file may claim any number of them.
_MOST_EPOCHS, _MOST_STEPS = 1 << 16, 1 << 24
_MOST_ROW = (1 << 40) - 1
_NAME = re.compile(r"trace\.(\d+)\.jsonl")


def key(rows: Int64Array) -> bytes:
    """Return a key of a batch. Batches of the same rows, in any order, have the same key."""
    return np.sort(rows).tobytes()


@dataclass
class Pass:
    """The steps of an epoch on a rank.

    Attributes:
        rows: int64 arrays, the rows of each step, by step in rising order.
        begun: the first step after the last start of the run in this epoch.
        ended: whether the loader ended.
        plans: digests of the plans of the loader, as recorded.
    """

    rows: dict[int, Int64Array] = field(default_factory=dict)
    begun: int = 0
    ended: bool = False
    plans: set[str] = field(default_factory=set)

    @property
    def steps(self) -> int:
        """Number of steps up to the last recorded step."""
        return next(reversed(self.rows), -1) + 1

    @cached_property
    def keys(self) -> dict[int, bytes]:
        """The key of each step. Use it after all lines are read."""
        return {step: key(rows) for step, rows in self.rows.items()}


class Trace:
    """The steps that a run recorded, by rank, epoch and step.

    If a run went back to a checkpoint, steps that it repeated replace the earlier ones.

    Args:
        folder: the folder with the files ``trace.RANK.jsonl``.

    Attributes:
        ranks: for each rank, its passes by epoch.
        begun: the first epoch and step of all ranks.

    Raises:
        InputError: there is no trace, the trace of a rank is missing, or one is damaged.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = no_url(folder)
        with readable(folder):
            names = {name: _NAME.fullmatch(name) for name in os.listdir(folder)}
        paths = {int(match[1]): folder / name for name, match in names.items() if match}
        if not paths:
            raise InputError(
                f"{folder}: has no trace.RANK.jsonl; record the training with "
                "batchplan.training.Recorder, or name the folder that it got"
            )
        self._devices = 1 + max(paths)
        passes = {rank: self._read(path) for rank, path in paths.items()}
        missing = next((rank for rank in range(self._devices) if rank not in paths), None)
        if missing is not None:
            raise InputError(
                f"{folder}: has traces of {len(paths)} ranks, but {self._devices} trained; no "
                f"trace.{missing}.jsonl; let all record into a folder that they share"
            )
        self.ranks = [passes[rank] for rank in range(self._devices)]
        self.begun = min(
            ((epoch, min(own[epoch].rows, default=0)) for own in self.ranks for epoch in own),
            default=(0, 0),
        )

    def _read(self, path: Path) -> dict[int, Pass]:
        """Read the passes of a rank, by epoch."""
        with open_regular(path, "a trace") as stream:
            lines = stream.read().split(b"\n")
        passes: dict[int, Pass] = {}
        epochs: list[int] = []  # of `passes`, rising
        last, started = (-1, -1), False
        for number, line in enumerate(lines, 1):
            try:
                document = parse_json(line, any_text=True)
                if "start" in document:
                    devices = _count(document["start"]["world_size"], _MOST_STEPS)
                    self._devices = max(self._devices, devices)
                    started = True
                    continue
                epoch = _count(document["epoch"], _MOST_EPOCHS)
                ended = "end" in document
                if not ended:
                    step = _count(document["step"], _MOST_STEPS)
                    rows = _row_numbers(document["rows"])
            except (ValueError, KeyError, TypeError) as error:
                # A run that was killed leaves half a line, at the end or before its next start.
                if number == len(lines) or lines[number].startswith(b'{"start"'):
                    continue
                raise InputError(
                    f"{path}: line {number}: is not of a trace ({error}); record again"
                ) from None
            again = not ended and (epoch, step) <= last
            if again:
                _forget(passes, epochs, (epoch, step))
            if epoch not in passes:
                passes[epoch] = Pass()
                insort(epochs, epoch)
            here = passes[epoch]
            if ended:
                here.ended = True
                continue
            if started or again:
                here.begun = step
            here.rows[step] = rows
            if isinstance(plan := document.get("plan"), str):
                here.plans.add(plan)
            last, started = (epoch, step), False
        return passes


def _forget(passes: dict[int, Pass], epochs: list[int], place: tuple[int, int]) -> None:
    """Remove the steps from this epoch and step on, each from the end, so that a step that many
    lines repeat takes no longer than others."""
    while epochs and epochs[-1] >= place[0]:
        own = passes[epochs[-1]]
        own.begun, own.ended = 0, False
        while own.rows and (epochs[-1], own.steps - 1) >= place:
            own.rows.popitem()
        if own.rows:  # of the epoch of the place, so that the others are before
            break
        del passes[epochs.pop()]


def _row_numbers(value: Any) -> Int64Array:
    rows = np.zeros(0, np.int64) if value == [] else integers_of(value)
    if rows is None or (rows.size and not 0 <= rows.min() <= rows.max() <= _MOST_ROW):
        raise ValueError(
            f"rows: got {value!r:.40}, expected a list of row numbers from 0 to {_MOST_ROW}"
        )
    return rows


def _count(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < most:
        raise ValueError(f"got {value!r:.40}, expected a number from 0 to {most - 1}")
    return value
