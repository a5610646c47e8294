"""The folder of a run's plans: its files, who plans in it, and for which run."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from batchplan.errors import InputError, ResourceError
from batchplan.files.atomic import output_errors, remove, write_files
from batchplan.files.documents import parse_json
from batchplan.files.locks import is_marked, mark_alive
from batchplan.files.reading import read_regular

_STARTED = time.time()  # an error file that is older was left by another run
_PAUSES = (0.01, 1.0)  # seconds between two looks at the folder, at first and at most
_PATIENCE = 60.0  # seconds until an existing plan is taken although rank 0 shows no sign of life
_TRIES = 100  # to lock the folder, with the first pause between them
_REASON = 2000  # characters of an error that the other processes repeat
_MOST = 1 << 20  # bytes of the description of a run

_MEND = "remove the folder, or name another"

_LOCKS: WeakValueDictionary[str, BinaryIO] = WeakValueDictionary()  # of this process, by file


class PlanFolder:
    """Plans of one run, ``plan-0000.npz`` for epoch 0 and so on, and ``run.json``.

    ``run.json`` describes the run. The process of rank 0 keeps it locked from its first plan until
    the run ends, so that a second run is refused, and the other processes notice within seconds if
    rank 0 is killed. In a file system without locks, neither is noticed.

    Args:
        path: of the folder, which is created with the first plan.
        every: epochs that share a plan.
    """

    def __init__(self, path: Path, every: int) -> None:
        self.path = path
        self._every = every
        self._run = path / "run.json"
        self._lock: BinaryIO | None = None
        self._begun = False
        self._resumed = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def plan_path(self, epoch: int) -> Path:
        """The file of an epoch's plan, whether or not it exists."""
        return self.path / f"plan-{epoch - epoch % self._every:04d}.npz"

    def saved(self) -> list[Path]:
        """The existing plans, by epoch."""
        numbers = ((path.stem.removeprefix("plan-"), path) for path in self.path.glob("plan-*.npz"))
        return [path for _, path in sorted((int(n), path) for n, path in numbers if n.isdecimal())]

    def clear_errors(self) -> None:
        """Remove the errors of earlier runs."""
        for path in self.path.glob("plan-*.error"):
            remove(path)

    def resume(self) -> None:
        """Accept the existing plans as those of this run."""
        self._resumed = True

    def begin(self, epoch: int, run: dict[str, Any]) -> None:
        """Start to plan in this folder, in the process of rank 0; does nothing the second time.

        Args:
            epoch: the first that the run asks for. A run that begins with epoch 0 must find no
                plans, unless it resumes.
            run: describes the run, as JSON values. Of two descriptions, what both have must agree.

        Raises:
            InputError: the plans are those of another run, or another run uses the folder now.
            OutputError: the folder cannot be written to.
        """
        if self._begun:
            return
        self._check(epoch, run)
        with output_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            name = os.path.realpath(self._run)
            lock = _LOCKS.get(name) or open(name, "ab")  # noqa: SIM115  (open as long as the run)
        if name not in _LOCKS and not _marked_soon(lock.fileno()):
            raise InputError(
                f"{self.path}: another run plans in this folder now; name another folder, or wait "
                "until that run has ended"
            )
        self._check(epoch, run)  # again: another run may have ended meanwhile
        if not self.saved():
            with output_errors(self._run):
                lock.truncate(0)
                lock.write(json.dumps(run, indent=1, default=str).encode())
                lock.flush()
        self._lock = _LOCKS[name] = lock
        self._begun = True

    def end(self) -> None:
        """Stop to plan in this folder."""
        self._lock, self._begun, self._resumed = None, False, False

    def save_error(self, epoch: int, error: BaseException) -> None:
        """Let the other processes fail with an error of rank 0, unless they are of another run."""
        if self._lock is None and is_marked(self._run):
            return
        reason = f"{type(error).__name__}: {error}"[:_REASON]
        with suppress(Exception):
            content = reason.encode(errors="backslashreplace")
            write_files({_error_path(self.plan_path(epoch)): content})

    def forget_error(self, epoch: int) -> None:
        """Remove the error of an epoch, which is planned again."""
        remove(_error_path(self.plan_path(epoch)))

    def wait(self, epoch: int, timeout: float) -> None:
        """Wait until rank 0 has made the plan of an epoch.

        Raises:
            ResourceError: rank 0 failed or has ended, or it takes longer than ``timeout`` seconds.
        """
        path = self.plan_path(epoch)
        start, (pause, most) = time.monotonic(), _PAUSES
        planning = False
        while True:
            planning = (locked := is_marked(self._run)) or planning
            there = path.exists()  # after the look at the lock: a plan is saved before it goes
            waited = time.monotonic() - start
            self._begun |= locked is not False or not there or waited > _PATIENCE
            if there and self._begun:
                return
            ended = planning and not locked
            self._raise_error(path, ended)
            if waited > timeout:
                raise ResourceError(
                    f"{path}: not there after {timeout:g} seconds; look at what the process of "
                    "rank 0 prints, let all machines share the folder, or raise timeout"
                )
            time.sleep(pause)
            pause = min(2 * pause, most)

    def _raise_error(self, path: Path, ended: bool) -> None:
        """Raise the error that rank 0 left, or one because it has ended."""
        error = _error_path(path)
        with suppress(FileNotFoundError):
            if ended or error.stat().st_mtime >= _STARTED:
                reason = error.read_text(errors="replace")
                raise ResourceError(f"{path}: the process of rank 0 failed with {reason}")
        if ended:
            raise ResourceError(
                f"{path}: the process of rank 0 has ended before it made this plan; look at what "
                "it printed last, such as too little memory, and start the training again"
            )

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
        for name, value in json.loads(json.dumps(run, default=str)).items():
            if (got := before.get(name, value)) != value:
                raise InputError(
                    f"{self.path}: holds the plans of another run, whose {name.replace('_', ' ')} "
                    f"is {got!r:.200}, expected {value!r:.200}; {_MEND}"
                )


def _marked_soon(descriptor: int) -> bool:
    """Whether a file could be marked: other processes lock it for moments, as they look."""
    for _ in range(_TRIES):
        if mark_alive(descriptor):
            return True
        time.sleep(_PAUSES[0])
    return False


def _error_path(path: Path) -> Path:
    return path.with_suffix(".error")
