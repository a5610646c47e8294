"""The file of the rows that each training step of a process saw."""

import json
import os
from typing import Any, BinaryIO

from batchplan.errors import InputError
from batchplan.files.atomic import output_errors
from batchplan.files.locks import hold
from batchplan.files.remote import no_url
from batchplan.options import ROW_COLUMN
from batchplan.training.arguments import checked
from batchplan.training.epochs import process_place
from batchplan.training.rows import take_rows

_encode = json.JSONEncoder(separators=(",", ":")).encode


class TraceWriter:
    """Writes ``trace.RANK.jsonl`` in a folder, one line per step; see `Recorder`."""

    @checked
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = no_url(folder)
        self._stream: BinaryIO | None = None

    def start(self) -> None:
        """Open the trace of this process, and write that the run has started.

        Raises:
            InputError: another process records into it, so that its steps would replace these.
            OutputError: it cannot be written.
        """
        rank, world_size = process_place()
        path = self.folder / f"trace.{rank}.jsonl"
        with output_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            stream = self._stream = hold(path)
        if stream is None:
            raise InputError(
                f"{path}: another process records as rank {rank} of {world_size} into it now; name "
                "a new folder for every run, or start all processes of a run with torchrun"
            )
        with output_errors(path):
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
        if self._stream is None or self._stream.closed:  # closed in a forked process
            self.start()
        stream = self._stream
        assert stream is not None  # `start` opened it
        with output_errors(self.folder):
            stream.write(_encode(document).encode() + b"\n")
            stream.flush()
