"""`Trace`: what `batchplan.training.Recorder` wrote, by rank, epoch and step."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.reading import open_regular, readable
from batchplan.files.remote import no_url
from batchplan.plans.validation import Int64Array

_MOST = 1 << 28  # steps of an epoch
_NAME = re.compile(r"trace\.(\d+)\.jsonl")


@dataclass
class Pass:
    """The steps of an epoch on a rank.

    Attributes:
        rows: int64 arrays, what each step saw, in the order of the batch.
        begun: the first step after the last start of the run in this epoch.
        ended: whether the loader had no more batches.
        plans: digests of the plans that the recorder knew.
    """

    rows: dict[int, Int64Array] = field(default_factory=dict)
    begun: int = 0
    ended: bool = False
    plans: set[str] = field(default_factory=set)

    @property
    def steps(self) -> int:
        """Steps of the epoch up to the last that was seen."""
        return max(self.rows, default=-1) + 1


class Trace:
    """The traces of all ranks.

    Where a run went back to a checkpoint, steps that were trained again count as they were then.

    Args:
        folder: of the files ``trace.RANK.jsonl``.

    Attributes:
        ranks: the passes of each rank, by epoch.

    Raises:
        InputError: no traces, one for a rank missing, or a damaged one.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = no_url(folder)
        with readable(folder):
            names = {name: _NAME.fullmatch(name) for name in os.listdir(folder)}
        paths = {int(match[1]): folder / name for name, match in names.items() if match}
        if not paths:
            raise InputError(
                f"{folder}: holds no trace.RANK.jsonl; record the training with "
                "batchplan.training.Recorder, or name the folder that it got"
            )
        self._devices = 1 + max(paths)
        passes: dict[int, dict[int, Pass]] = {rank: {} for rank in paths}
        for rank, path in paths.items():
            self._read(path, passes[rank])
        missing = next((rank for rank in range(self._devices) if rank not in paths), None)
        if missing is not None:
            raise InputError(
                f"{folder}: has traces of {len(paths)} ranks, but {self._devices} trained; no "
                f"trace.{missing}.jsonl; let all record into a folder that they share"
            )
        self.ranks = [passes[rank] for rank in range(self._devices)]

    def _read(self, path: Path, passes: dict[int, Pass]) -> None:
        with open_regular(path, "a trace") as stream:
            lines = stream.read().split(b"\n")
        last = -1, -1
        started = False
        for number, line in enumerate(lines, 1):
            try:
                document = parse_json(line, any_text=True)
                if "start" in document:
                    self._devices = max(self._devices, _count(document["start"]["world_size"]))
                    started = True
                    continue
                epoch = _count(document["epoch"])
                if "end" in document:
                    passes.setdefault(epoch, Pass()).ended = True
                    continue
                place = epoch, _count(document["step"])
                rows = np.array(document["rows"] or np.zeros(0, np.int64))
                if rows.ndim != 1 or rows.dtype != np.int64:
                    raise ValueError("rows: expected a list of integers")
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                # A line that was cut: the writer was killed.
                if number == len(lines) or lines[number].startswith(b'{"start"'):
                    continue
                raise InputError(
                    f"{path}: line {number}: is not of a trace ({error}); record again"
                ) from None
            if place <= last:
                _forget(passes, place)
            here = passes.setdefault(epoch, Pass())
            if started or place <= last:
                here.begun = place[1]
            here.rows[place[1]] = rows
            if isinstance(plan := document.get("plan"), str):
                here.plans.add(plan)
            last, started = place, False


def _forget(passes: dict[int, Pass], place: tuple[int, int]) -> None:
    """Take back the steps from a place on."""
    for epoch in [epoch for epoch in passes if epoch >= place[0]]:
        kept = {step: rows for step, rows in passes[epoch].rows.items() if (epoch, step) < place}
        if kept:
            passes[epoch] = Pass(kept, plans=passes[epoch].plans)
        else:
            del passes[epoch]


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise ValueError(f"got {value!r:.40}, expected a number from 0 to {_MOST - 1}")
    return value
