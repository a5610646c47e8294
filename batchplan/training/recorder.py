"""Records which rows each training step saw, for `batchplan verify-consumption`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

from batchplan.errors import InputError
from batchplan.files.atomic import output_errors
from batchplan.files.remote import no_url
from batchplan.options import ROW_COLUMN
from batchplan.training.arguments import checked
from batchplan.training.epochs import process_place
from batchplan.training.rows import Wrapper, number, take_rows
from batchplan.training.sampler import PlanBatchSampler

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Recorder:
    """Writes the rows of each step to ``trace.RANK.jsonl``, one line per step.

        recorder = Recorder("trace")
        for batch in recorder.wrap(loader):
            train_step(model, batch)

    A line is in the file before its step begins, so that a hang or a kill loses none. A run that
    starts again appends to the file. All processes record into a folder that they share.

    Args:
        folder: created if it is missing. Use a new one for every run.
    """

    @checked
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = no_url(folder)
        self._stream: BinaryIO | None = None
        self._epoch = 0

    @checked
    def wrap(self, loader: Any, *, epoch: int | None = None, step: int | None = None) -> Recorded:
        """Return the batches of a loader without the column ``batchplan_row``, whose rows are
        recorded.

        The number of a row is its place in the data set of a DataLoader. If it is not, or for
        other loaders, see `batchplan.training.with_rows`. Wrap what the loop iterates over, after
        accelerate prepared it.

        Args:
            loader: the loader as the training loop takes it.
            epoch: of the first pass; by default ``loader.epoch``, or one more than that of the
                last pass, from 0. A run that starts again must pass it.
            step: of the first batch of the first pass, if the loader begins in the middle of an
                epoch; by default ``loader.steps``, or 0.

        Raises:
            InputError: a place in the data set may not be the row number, or batches have no
                column.
            OutputError: the trace cannot be written.
        """
        number(loader)
        return Recorded(self, loader, epoch, step)

    def attach(self, trainer: Any) -> None:
        """Record the training steps of a Trainer of transformers, sentence-transformers or
        Lightning, before it trains. For Lightning, call `with_rows` on the data set.

        Raises:
            InputError: another kind of trainer.
        """
        for method, name in (("get_train_dataloader", "transformers"), ("fit_loop", "lightning")):
            if hasattr(trainer, method):
                import_module(f"batchplan.training.{name}").record(self, trainer)
                return
        raise InputError(
            f"trainer: got a {type(trainer).__name__}, expected a Trainer of transformers or "
            "lightning; for other loops, iterate over recorder.wrap(loader)"
        )

    def start(self) -> None:
        """Open the trace of this process, and write that the run has started."""
        rank, world_size = process_place()
        path = self.folder / f"trace.{rank}.jsonl"
        with output_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            stream = self._stream = os.fdopen(os.open(path, flags, 0o666), "ab+")
            if size := stream.seek(0, os.SEEK_END):
                stream.seek(size - 1)
                if stream.read(1) != b"\n":  # the writer of the last line was killed
                    stream.write(b"\n")
        self._write({"start": {"rank": rank, "world_size": world_size}})

    @checked
    def take(self, batch: Any, epoch: int, step: int, plan: str | None = None) -> Any:
        """Record the rows of a batch.

        Args:
            batch: the next batch of the training; see `batchplan.training.rows.take_rows`.
            epoch, step: of the batch.
            plan: digest of the plan that the batch is from, if that is known.

        Returns:
            The batch without its row numbers.

        Raises:
            InputError: it has none.
        """
        rest, rows = take_rows(batch)
        if rows is None:
            raise InputError(
                f"batch: a {type(batch).__name__} without {ROW_COLUMN}; make the loader from "
                "batchplan.training.with_rows(dataset), and let its collate_fn keep the column"
            )
        self._write({"epoch": epoch, "step": step, "rows": rows, "plan": plan})
        return rest

    @checked
    def end(self, epoch: int, steps: int) -> None:
        """Record that the loader has no more batches in this epoch, after ``steps`` of them."""
        self._write({"epoch": epoch, "end": steps})

    def _write(self, document: dict[str, Any]) -> None:
        if self._stream is None:
            self.start()
        stream = self._stream
        assert stream is not None  # `start` opened it
        with output_errors(self.folder):
            stream.write(_encode(document).encode() + b"\n")
            stream.flush()

    def _begin(self, epoch: int | None) -> int:
        """Return the epoch of a pass that begins."""
        if self._stream is None:
            self.start()
        chosen = self._epoch if epoch is None else epoch
        self._epoch = chosen + 1
        return chosen


class Recorded(Wrapper):
    """A loader whose batches are recorded; see `Recorder.wrap`. It has the loader's attributes."""

    def __init__(
        self, recorder: Recorder, loader: Any, epoch: int | None, step: int | None
    ) -> None:
        super().__init__(loader)
        self._recorder, self._begin = recorder, (epoch, step)

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Any]:
        loader, recorder = self._inner, self._recorder
        (epoch, step), self._begin = self._begin, (None, None)
        epoch = recorder._begin(getattr(loader, "epoch", None) if epoch is None else epoch)
        step = getattr(loader, "steps", 0) if step is None else step
        for batch in loader:
            yield recorder.take(batch, epoch, step, plan_of(loader))
            step += 1
        recorder.end(epoch, step)


def plan_of(loader: Any) -> str | None:
    """Return the digest of the plan that a loader takes batches from, if it has a
    `PlanBatchSampler`."""
    loader = getattr(loader, "prepared", loader)
    sampler = getattr(loader, "batch_sampler", None)
    while sampler is not None and not isinstance(sampler, PlanBatchSampler):
        sampler = getattr(sampler, "batch_sampler", None)
    return None if sampler is None else sampler.plan.digest
