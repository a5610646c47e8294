"""Plans the next epoch in a separate process while the training goes on."""

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

from batchplan.errors import BatchplanError, InputError, OutputError
from batchplan.files.atomic import remove
from batchplan.files.documents import parse_json
from batchplan.processes import end_process, reason, start_python
from batchplan.runtime import usable_processors
from batchplan.training.folder import PlanFolder
from batchplan.training.plan_maker import PlanMaker
from batchplan.training.store import Store
from batchplan.training.vectors import STEPS, Vectors, gather

_PATIENCE = 0.5  # seconds that the process has to remove partly written files
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

_LOGGER = logging.getLogger(__name__)


class Ahead:
    """Plans the next epoch from the vectors of the steps up to a certain one.

    When a share of a plan's steps is left, each process saves the vectors of the steps before, in a
    thread. Rank 0 starts a process that waits for these files and plans. So the plan depends on the
    steps alone, not on the time. If that process fails, rank 0 plans the epoch from the same
    vectors before it begins.

    Args:
        share: of the steps of a plan, those that are left when the next one is made.
        epochs: number of epochs of the run; None if that is not known.
        files: the folder of the plans.
        vectors: of the training steps.
        planner: makes the plans.

    Raises:
        InputError: the share is not between 0 and 1, or steps record no vectors.
    """

    def __init__(
        self,
        share: float,
        epochs: float | None,
        files: PlanFolder,
        vectors: Vectors,
        planner: PlanMaker,
    ) -> None:
        if vectors.embeddings != "training" or not 0 < share < 1:
            raise InputError(
                f"ahead: got {share} with embeddings={vectors.embeddings!r}, expected a share "
                'above 0 and below 1, such as 0.1, with embeddings="training"'
            )
        self._share, self._epochs = share, epochs
        self._files, self._vectors, self._planner = files, vectors, planner
        self._epoch: int | None = None  # that is trained on
        self._next: int | None = None  # that is planned meanwhile
        self._left = 0  # steps until the vectors are handed over
        self._saving: Future[None] | None = None
        self._process: _Process | None = None

    def begin(self, epoch: int, steps: int) -> None:
        """Start to count the steps of an epoch, which begins or goes on.

        Args:
            epoch: from 0.
            steps: number of steps of the epoch.
        """
        if epoch == self._epoch:
            return
        self._epoch = epoch
        every = self._files.every
        later = self._files.first(epoch) + every
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
        """Count a step whose vectors were recorded. Start to plan if it is the last before."""
        self._left -= 1
        if self._next is not None and self._left == 0:
            self._hand_over(self._next)

    def finish(self, epoch: int) -> bool:
        """Finish the plan that was begun, if this epoch has another plan than the last one.

        Returns:
            Whether this epoch has the plan that was finished. The file is there in the process of
            rank 0, and soon in the others.
        """
        path = self._files.plan_path
        if self._next is None or self._epoch is None or path(epoch) == path(self._epoch):
            return False
        later, self._next = self._next, None
        saving = self._saving or self._hand_over(later)  # there were fewer steps than expected
        process, self._saving, self._process = self._process, None, None
        try:
            saving.result()
        except BaseException:
            if process is not None:
                process.end()
            raise
        if process is not None:
            self._wait_for(process, later)
        return path(later) == path(epoch)

    def cancel(self) -> None:
        """Give up the plan that was begun."""
        later, self._next = self._next, None
        if self._process is not None:
            self._process.end()
        if self._saving is not None and later is not None:
            with suppress(OutputError):
                self._saving.result()
            remove(self._files.part_path(later, STEPS, self._files.rank))
        self._process = self._saving = None

    def _hand_over(self, epoch: int) -> Future[None]:
        pool = ThreadPoolExecutor(1)
        self._saving = pool.submit(self._vectors.handed_over(epoch))
        pool.shutdown(wait=False)
        files = self._files
        if files.rank == 0:
            lent, scratch = self._vectors.store.lend()
            folder = [os.path.abspath(files.path), files.every, files.world_size, files.timeout]
            folder.append(files.start)
            arguments = self._planner.arguments()
            job = {"folder": folder, "epoch": epoch, "store": lent, "planner": arguments}
            self._process = _Process(job, scratch)
        return self._saving

    def _wait_for(self, process: "_Process", later: int) -> None:
        failed = process.wait()
        if not self._files.plan_path(later).exists():
            _LOGGER.warning(
                "epoch %d: the process that planned it next to the training failed (%s); it is "
                "planned now, before it begins",
                later, failed,
            )  # fmt: skip
            _make(self._vectors.store, self._files, self._planner.arguments(), later)
        self._files.remove_old(later)


class _Process:
    """The process that plans. It ends with this one, which it watches, or when a pipe closes.

    Args:
        job: what `serve` reads, without the pipe.
        files: it inherits their descriptors.
    """

    def __init__(self, job: dict[str, Any], files: list[BinaryIO]) -> None:
        self._failed = ""
        self._process: subprocess.Popen[bytes] | None = None
        watched, held = os.pipe()
        self._held = os.fdopen(held, "wb")
        self._messages: BinaryIO = TemporaryFile()  # noqa: SIM115  (read when it has ended)
        threads = str(max(1, usable_processors() // 2))
        with os.fdopen(watched, "rb"), TemporaryFile() as stdin:
            stdin.write(json.dumps(job, default=os.fspath).encode())
            stdin.seek(0)
            try:
                self._process = start_python(
                    __name__, watched, _PATIENCE,
                    stdin=stdin, stdout=subprocess.DEVNULL, stderr=self._messages,
                    pass_fds=[file.fileno() for file in files],
                    env={**os.environ, **dict.fromkeys(_THREADS, threads)},
                )  # fmt: skip
            except OSError as error:
                self._failed = f"could not be started: {error.strerror}"

    def wait(self) -> str:
        """Wait until the process has ended. Returns why it ended."""
        if self._process is None:
            return self._failed
        status = self._process.wait()
        self._held.close()
        self._messages.seek(0)
        return reason(status, self._messages.read().decode(errors="replace"))

    def end(self) -> None:
        """End the process."""
        self._held.close()
        if self._process is not None:
            end_process(self._process)


def serve() -> None:
    """Do the job in standard input, in the process that plans next to the training."""
    job = parse_json(sys.stdin.buffer.read())
    signal.signal(signal.SIGTERM, _stop)
    folder, every, world_size, timeout, start = job["folder"]
    files = PlanFolder(Path(folder), every, 1, 0, world_size, timeout)
    files.start = start
    try:
        _make(Store.borrowed(job["store"]), files, job["planner"], job["epoch"])
    except BatchplanError as error:
        sys.exit(f"error: {error}")


def _make(store: Store, files: PlanFolder, arguments: dict[str, Any], epoch: int) -> None:
    """Plan an epoch from the steps that were handed over, and remove their files."""
    gather(store, files, epoch, STEPS)
    store.share()
    PlanMaker(files=files, **arguments).make(epoch, store.sides)
    files.remove_parts(epoch)


def _stop(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)  # removes partly written files
