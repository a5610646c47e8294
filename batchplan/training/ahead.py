"""Plans the next epoch in a process of its own, while the training goes on."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from batchplan.errors import BatchplanError, OutputError
from batchplan.files.atomic import remove
from batchplan.files.documents import parse_json
from batchplan.processes import end_process, end_with, reason, start_python
from batchplan.training.folder import PlanFolder
from batchplan.training.planner import EpochPlanner
from batchplan.training.store import Store
from batchplan.training.vectors import STEPS, Vectors, gather

_PATIENCE = 1.5  # seconds that the process has to remove partly written files
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

_LOGGER = logging.getLogger(__name__)


class Ahead:
    """Plans the next epoch from the vectors of the steps up to a named one.

    When a share of a plan's steps is left, each process saves the vectors of those before, in a
    thread. The process of rank 0 starts one more, which waits for these files and plans. So the
    plan follows from the steps alone, however long that takes. If that process fails, the epoch is
    planned from the same vectors before it begins.

    Args:
        share: of the steps of a plan, those that are left when the next one is made.
        epochs: of the run, None if that is not known.
        files: the folder of the plans.
        vectors: of the training steps.
        planner: makes the plans.
        threads: of the process that plans.
        rank, world_size: of this process.
        timeout: seconds that a process waits for another one.
    """

    def __init__(
        self,
        share: float,
        epochs: int | None,
        files: PlanFolder,
        vectors: Vectors,
        planner: EpochPlanner,
        threads: int,
        rank: int,
        world_size: int,
        timeout: float,
    ) -> None:
        self._share, self._epochs = share, epochs
        self._threads, self._files = threads, files
        self._vectors, self._planner = vectors, planner
        self._rank, self._world_size, self._timeout = rank, world_size, timeout
        self._epoch: int | None = None  # that is trained on
        self._next: int | None = None  # that is planned meanwhile
        self._left = 0  # steps until the vectors are handed over
        self._saving: Future[None] | None = None
        self._process: _Process | None = None

    def begin(self, epoch: int, steps: int) -> None:
        """An epoch of that many steps begins, or goes on."""
        if epoch == self._epoch:
            return
        self._epoch = epoch
        every = self._files.every
        later = epoch - epoch % every + every
        if later == self._next:  # the plan lasts for several epochs
            return
        self.cancel()
        wanted = self._epochs is None or later < self._epochs
        if (
            wanted
            and self._planner.is_planned(later)
            and self._vectors.complete
            and not self._files.plan_path(later).exists()
        ):
            before = every * steps - math.ceil(self._share * every * steps)
            self._next, self._left = later, max(1, before - epoch % every * steps)

    def step(self) -> None:
        """The vectors of a step were recorded."""
        self._left -= 1
        if self._next is not None and self._left == 0:
            self._hand_over(self._next)

    def finish(self, epoch: int) -> bool:
        """End what was begun, if an epoch is asked for that has another plan than the last steps.

        Returns:
            Whether that is the plan of this epoch: it is there in the process of rank 0, and soon
            in the others.
        """
        if self._next is None or self._epoch is None:
            return False
        if self._files.plan_path(epoch) == self._files.plan_path(self._epoch):
            return False
        later, self._next = self._next, None
        saving = self._saving or self._hand_over(later)  # there were fewer steps than expected
        process = self._process
        self._saving = self._process = None
        try:
            saving.result()
        except BaseException:
            if process is not None:
                process.end()
            raise
        if process is not None:
            self._wait_for(process, later)
        return self._files.plan_path(later) == self._files.plan_path(epoch)

    def _wait_for(self, process: _Process, later: int) -> None:
        failed = process.wait()
        if not self._files.plan_path(later).exists():
            _LOGGER.warning(
                "epoch %d: the process that planned it beside the training failed (%s); it is "
                "planned now, before it begins",
                later, failed,
            )  # fmt: skip
            store, arguments = self._vectors.store, self._planner.arguments()
            _make(store, self._files, arguments, later, self._world_size, self._timeout)
        self._planner.remove_old(later)

    def cancel(self) -> None:
        """Do without the plan that was begun."""
        later, self._next = self._next, None
        if self._process is not None:
            self._process.end()
        if self._saving is not None and later is not None:
            with suppress(OutputError):
                self._saving.result()
            remove(self._files.part_path(later, STEPS, self._rank))
        self._process = self._saving = None

    def _hand_over(self, epoch: int) -> Future[None]:
        pool = ThreadPoolExecutor(1)
        self._saving = pool.submit(self._vectors.handed_over(epoch))
        pool.shutdown(wait=False)
        if self._rank == 0:
            lent, files = self._vectors.store.lend()
            job = {
                "folder": os.path.abspath(self._files.path),
                "epoch": epoch,
                "world_size": self._world_size,
                "timeout": self._timeout,
                "store": lent,
                "planner": self._planner.arguments(),
            }
            self._process = _Process(job, files, self._threads)
        return self._saving


class _Process:
    """The process that plans. It ends with this one, as a pipe between them closes.

    Args:
        job: what `serve` reads, but for the pipe.
        files: whose descriptors it inherits.
        threads: that it may use.
    """

    def __init__(self, job: dict[str, Any], files: list[BinaryIO], threads: int) -> None:
        self._failed: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        watched, held = os.pipe()
        self._held = os.fdopen(held, "wb")
        self._messages: BinaryIO = TemporaryFile()  # noqa: SIM115  (read when it has ended)
        with os.fdopen(watched, "rb"), TemporaryFile() as stdin:
            stdin.write(json.dumps({**job, "parent": watched}, default=os.fspath).encode())
            stdin.seek(0)
            try:
                self._process = start_python(
                    __name__,
                    stdin=stdin, stdout=subprocess.DEVNULL, stderr=self._messages,
                    pass_fds=[watched, *(file.fileno() for file in files)],
                    env={**os.environ, **dict.fromkeys(_THREADS, str(threads))},
                )  # fmt: skip
            except OSError as error:
                self._failed = f"could not be started: {error.strerror}"

    def wait(self) -> str:
        """Wait until it has ended, and say why."""
        if self._process is None:
            return str(self._failed)
        status = self._process.wait()
        self._held.close()
        self._messages.seek(0)
        return reason(status, self._messages.read().decode(errors="replace"))

    def end(self) -> None:
        """End it."""
        self._held.close()
        if self._process is not None:
            end_process(self._process)


def serve() -> None:
    """Do the job that standard input holds, in the process that plans beside the training."""
    job = parse_json(sys.stdin.buffer.read())
    end_with(job["parent"], _PATIENCE)
    signal.signal(signal.SIGTERM, _stop)
    files = PlanFolder(Path(job["folder"]), job["planner"]["every"], 0)
    try:
        store = Store.borrowed(job["store"])
        _make(store, files, job["planner"], job["epoch"], job["world_size"], job["timeout"])
    except BatchplanError as error:
        sys.exit(f"error: {error}")


def _make(
    store: Store,
    files: PlanFolder,
    arguments: dict[str, Any],
    epoch: int,
    world_size: int,
    timeout: float,
) -> None:
    """Plan an epoch from the steps that were handed over; remove their files."""
    gather(store, files, epoch, STEPS, world_size, timeout)
    store.share()
    EpochPlanner(files, **arguments).make(epoch, store.sides)
    files.remove_parts(of=epoch)


def _stop(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)  # removes partly written files
