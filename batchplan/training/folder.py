"""The folder of a run's plans, through which its processes also wait for each other."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from batchplan.errors import InputError, ResourceError
from batchplan.files.atomic import output_errors, remove, write_files
from batchplan.files.documents import parse_json
from batchplan.files.locks import is_marked, mark_alive
from batchplan.files.reading import read_regular
from batchplan.text import keyed_url

_STARTED = time.time()  # an error file that is older was left by another run
_PAUSES = (0.01, 1.0)  # seconds between two looks at the folder, at first and at most
_PATIENCE = 300.0  # seconds until rank 0 is taken to have begun although its lock is not seen
_TRIES = 100  # to lock the folder, with the first pause between them
_REASON = 2000  # characters of an error that the other processes repeat
_MOST = 1 << 20  # bytes of the description of a run

_MEND = "remove the folder, or name another"

_LOCKS: WeakValueDictionary[str, BinaryIO] = WeakValueDictionary()  # of this process, by file


class FailedElsewhereError(ResourceError):
    """Another process of the run failed or has ended."""


class PlanFolder:
    """The plans of one run, ``plan-0000.npz`` for epoch 0 and so on, and ``run.json``.

    ``run.json`` describes the run. The process of rank 0 keeps it locked from its first plan until
    the run ends, and each other process locks a file of its own. So a second run is refused, and
    all processes notice within seconds if one of them is killed. A file system without locks allows
    neither.

    Args:
        path: of the folder, which is created with the first plan.
        every: epochs that share a plan.
        keep: number of plans that stay, the newest ones.
        rank, world_size: of this process.
        timeout: seconds that a process waits for another one.
    """

    def __init__(
        self, path: Path, every: int, keep: int, rank: int, world_size: int, timeout: float
    ) -> None:
        self.path, self.every, self._keep = path, every, keep
        self.rank, self.world_size, self.timeout = rank, world_size, timeout
        self._run = path / "run.json"
        self._lock: BinaryIO | None = None
        self._begun = self._resumed = False
        self._seen: set[int] = set()  # ranks whose lock was seen

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def first(self, epoch: int) -> int:
        """Return the first epoch with the same plan."""
        return epoch - epoch % self.every

    def plan_path(self, epoch: int) -> Path:
        """Return the file of an epoch's plan, whether or not it exists."""
        return self.path / f"plan-{self.first(epoch):04d}.npz"

    def saved(self) -> list[Path]:
        """Return the existing plans, by epoch."""
        numbers = ((path.stem.removeprefix("plan-"), path) for path in self.path.glob("plan-*.npz"))
        return [path for _, path in sorted((int(n), path) for n, path in numbers if n.isdecimal())]

    def part_path(self, epoch: int, part: int | str, rank: int) -> Path:
        """Return the file of the vectors of a process: of a call of ``embed``, or of its steps."""
        return self.path / f"part-{self.first(epoch):04d}-{part}-{rank}.npy"

    def rows_path(self, epoch: int) -> Path:
        """Return the file of the rows that must be embedded because no step has recorded them."""
        return self.path / f"part-{self.first(epoch):04d}-rows.npy"

    def remove_parts(self, epoch: int) -> None:
        """Remove the vectors that an epoch was planned from. Other processes may have saved those
        for the next one already."""
        for path in self.path.glob(f"part-{self.first(epoch):04d}-*.npy"):
            remove(path)

    def remove_old(self, epoch: int) -> None:
        """Remove plans that are too old to keep, when that of an epoch is needed."""
        newest = self.plan_path(epoch).name
        for path in [saved for saved in self.saved() if saved.name <= newest][: -self._keep]:
            remove(path)

    def clear_errors(self) -> None:
        """Remove the errors of earlier runs."""
        for path in self.path.glob("plan-*.error"):
            remove(path)

    def resume(self) -> None:
        """Accept the existing plans as those of this run."""
        self._resumed = True

    def begin(self, epoch: int, run: dict[str, Any]) -> None:
        """Begin the run in this process, unless it has begun. Other processes than that of rank 0
        wait until that has begun.

        Args:
            epoch: the first that is needed. A run that begins with epoch 0 must find no plans,
                unless it resumes. Vectors that an earlier run embedded for it are kept.
            run: describes the run, as JSON values. What two descriptions have in common must agree.

        Raises:
            InputError: the plans are those of another run, or another run uses the folder now.
            OutputError: the folder cannot be written to.
            ResourceError: as `wait_for`.
        """
        if self._begun:
            return
        if self.rank:
            self._join(epoch)
        else:
            self._start(epoch, run)
        self._begun = True

    def _start(self, epoch: int, run: dict[str, Any]) -> None:
        self._check(epoch, run)
        if not is_marked(self._run):  # before the lock is held, no process reads or writes parts
            self._remove_left(epoch if self.saved() else None)
        lock = self._locked(self._run)
        self._check(epoch, run)  # again: another run may have ended meanwhile
        if not self.saved():
            self._write(lock, json.dumps(run, indent=1, default=str))
        os.utime(self._run)  # shows other processes that do not see the lock that the run has begun
        self._lock = lock

    def _join(self, epoch: int) -> None:
        before, patience = self._written(), time.monotonic() + _PATIENCE

        def begun() -> bool:
            late = time.monotonic() > patience and self._run.exists()
            return is_marked(self._run) is not False or self._written() != before or late

        self._wait(begun, f"{self._run}: not locked", epoch, 0)
        self._lock = self._locked(self._lock_path(self.rank))
        self._write(self._lock, socket.gethostname())

    def end(self) -> None:
        """End the run in this process."""
        self._lock, self._begun, self._resumed = None, False, False

    def save_error(self, epoch: int, error: BaseException) -> None:
        """Let the other processes fail with an error of this one. Does nothing if they are of
        another run, or failed with it already."""
        if isinstance(error, FailedElsewhereError) or (self._lock is None and is_marked(self._run)):
            return
        said = "" if keyed_url(str(error)) else f": {error}"  # of the user's function
        reason = f"rank {self.rank} failed with {type(error).__name__}{said}"
        with suppress(Exception):
            content = reason[:_REASON].encode(errors="backslashreplace")
            write_files({self._error_path(epoch): content})

    def forget_error(self, epoch: int) -> None:
        """Remove the error of an epoch that is planned again."""
        remove(self._error_path(epoch))

    def wait_for(self, path: Path, epoch: int, rank: int, *, or_plan: bool = False) -> None:
        """Wait until the process of a rank has made a file for an epoch, or its plan.

        Raises:
            ResourceError: the process failed, has ended, or takes longer than ``timeout``.
        """
        paths = [path, self.plan_path(epoch)] if or_plan else [path]
        self._wait(lambda: any(map(Path.exists, paths)), f"{path}: not there", epoch, rank)

    def _wait(self, ready: Callable[[], bool], what: str, epoch: int, rank: int) -> None:
        deadline, (pause, most) = time.monotonic() + self.timeout, _PAUSES
        lock = self._lock_path(rank)
        while True:
            # In this order: a process locks its file, writes its host there, makes files, and ends.
            host, locked = _host_of(lock) if rank else "", is_marked(lock)
            if locked or (locked is False and host == socket.gethostname()):
                self._seen.add(rank)  # in the second case, it ended before the first look
            if ready():
                return
            self._raise_error(epoch, rank, rank in self._seen and not locked)
            if time.monotonic() > deadline:
                raise ResourceError(
                    f"{what} after {self.timeout:g} seconds; look at what the process of rank "
                    f"{rank} prints, let all machines share the folder, or raise timeout"
                )
            time.sleep(pause)
            pause = min(2 * pause, most)

    def _raise_error(self, epoch: int, rank: int, ended: bool) -> None:
        """Raise the error that another process left, or one because it has ended."""
        path, error = self.plan_path(epoch), self._error_path(epoch)
        with suppress(FileNotFoundError):
            if ended or error.stat().st_mtime >= _STARTED:
                reason = error.read_text(errors="replace")
                raise FailedElsewhereError(f"{path}: the process of {reason}")
        if ended:
            raise FailedElsewhereError(
                f"{path}: the process of rank {rank} has ended before it did its part; look at "
                "what it printed last, such as too little memory, and start the training again"
            )

    def _locked(self, path: Path) -> BinaryIO:
        """Open a file that this process keeps locked until the file is closed."""
        with output_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            name = os.path.realpath(path)
            lock = _LOCKS.get(name) or open(name, "ab")  # noqa: SIM115  (open as long as the run)
        if name not in _LOCKS and not _marked_soon(lock.fileno()):
            raise InputError(
                f"{self.path}: another run plans in this folder now; name another folder, or wait "
                "until that run has ended"
            )
        _LOCKS[name] = lock
        return lock

    def _write(self, lock: BinaryIO, text: str) -> None:
        with output_errors(self.path):
            lock.truncate(0)
            lock.write(text.encode())
            lock.flush()

    def _lock_path(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.lock" if rank else self._run

    def _error_path(self, epoch: int) -> Path:
        return self.plan_path(epoch).with_suffix(".error")

    def _written(self) -> int:
        """Return when ``run.json`` was last written, in nanoseconds; 0 if it does not exist."""
        with suppress(FileNotFoundError):
            return self._run.stat().st_mtime_ns
        return 0

    def _remove_left(self, kept: int | None) -> None:
        """Remove the files of earlier runs' processes, except for the vectors that were embedded
        for the epoch ``kept``."""
        for path in (*self.path.glob("part-*.npy"), *self.path.glob("rank-*.lock")):
            words = path.stem.split("-")
            embedded = len(words) == 4 and words[2].isdecimal()
            if kept is None or not embedded or words[1] != f"{self.first(kept):04d}":
                remove(path)

    def _check(self, epoch: int, run: dict[str, Any]) -> None:
        """Require that existing plans are of this run."""
        if not self.saved():
            return
        if epoch == 0 and not self._resumed:
            raise InputError(
                f"{self.path}: holds the plans of an earlier run, which another model made; "
                f"{_MEND}, or load the state of a checkpoint to go on with that run"
            )
        if not self._run.exists():
            return
        try:
            before = parse_json(read_regular(self._run, _MOST, "the description of a run"))
        except ValueError as error:  # InputError is one
            raise InputError(f"{self._run}: damaged ({error}); {_MEND}") from None
        before = before if isinstance(before, dict) else {}
        for name, value in parse_json(json.dumps(run, default=str).encode()).items():
            if (got := before.get(name, value)) != value:
                raise InputError(
                    f"{self.path}: holds the plans of another run, whose {name.replace('_', ' ')} "
                    f"is {got!r:.200}, expected {value!r:.200}; {_MEND}"
                )


def _marked_soon(descriptor: int) -> bool:
    """Return whether a file could be marked. Other processes lock it for moments when they look at
    it."""
    for _ in range(_TRIES):
        if mark_alive(descriptor):
            return True
        time.sleep(_PAUSES[0])
    return False


def _host_of(path: Path) -> str:
    """The host of a process, by the file that it locks; "" if there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
