"""The folder of a run's plans, through which its processes also wait for each other."""

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO
from weakref import ref

from batchplan.errors import InputError, OutputError, ResourceError
from batchplan.files.atomic import output_errors, remove, write_files
from batchplan.files.documents import parse_json
from batchplan.files.locks import hold, is_at, is_marked
from batchplan.files.reading import read_regular
from batchplan.text import keyed_url

_STARTED = time.time()  # an error file that is older was left by another run
_PAUSES = (0.01, 1.0)  # seconds between two looks at the folder, at first and at most
_ANSWERS = 0.25  # seconds between two looks for announcements, at most
_REASON = 2000  # characters of an error that the other processes repeat
_MOST = 1 << 20  # bytes of the description of a run

_MEND = "remove the folder, or name another"


class FailedElsewhereError(ResourceError):
    """Another process of the run failed or has ended."""


class PlanFolder:
    """The plans of one run, ``plan-0000.npz`` for epoch 0 and so on, and ``run.json``. If only the
    first batches of an epoch are random, the plan with the planned rest is ``rest-0000.npz``.

    ``run.json`` describes the run. The process of rank 0 keeps it locked from its first plan until
    the run ends, and each other process locks a file of its own. So a second run is refused, and
    all processes notice within seconds if one of them is killed after it asked for its first plan.
    A file system without locks allows neither.

    The run begins with a handshake, which needs neither locks nor clocks: each process announces
    itself in ``rank-1.lock`` and so on, and the process of rank 0 answers in ``rank-1.start`` with
    the name of this start of the run. Vectors travel in files with this name. So files of earlier
    processes, whether these have ended or not, are not taken for files of this run.

    Args:
        path: of the folder, which is created with the first plan.
        every: epochs that share a plan.
        keep: number of plans that stay, the newest ones.
        rank, world_size: of this process.
        timeout: seconds that a process waits for another one.

    Attributes:
        start: names this start of the run; "" before `begin`.
    """

    def __init__(
        self, path: Path, every: int, keep: int, rank: int, world_size: int, timeout: float
    ) -> None:
        self.path, self.every, self._keep = path, every, keep
        self.rank, self.world_size, self.timeout = rank, world_size, timeout
        self.start, self._run = "", path / "run.json"
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

    def rest_path(self, epoch: int) -> Path:
        """Return the file of an epoch's plan from the batch on that begins the planned rest."""
        return self.path / f"rest-{self.first(epoch):04d}.npz"

    def saved(self) -> list[Path]:
        """Return the existing plans, by epoch."""
        numbers = ((path.stem.removeprefix("plan-"), path) for path in self.path.glob("plan-*.npz"))
        return [path for _, path in sorted((int(n), path) for n, path in numbers if n.isdecimal())]

    def part_path(self, epoch: int, part: int | str, rank: int) -> Path:
        """Return the file of the vectors of a process: of a call of ``embed``, or of its steps."""
        return self.path / f"part-{self.start}-{self.first(epoch):04d}-{part}-{rank}.npy"

    def rows_path(self, epoch: int) -> Path:
        """Return the file of the rows that must be embedded because no step has recorded them."""
        return self.path / f"part-{self.start}-{self.first(epoch):04d}-rows.npy"

    def remove_parts(self, epoch: int) -> None:
        """Remove the vectors that an epoch was planned from. Other processes may have saved those
        for the next one already."""
        for path in self.path.glob(f"part-{self.start}-{self.first(epoch):04d}-*"):
            remove(path)

    def remove_old(self, epoch: int) -> None:
        """Remove plans that are too old to keep, when the plan of an epoch is needed."""
        newest = self.plan_path(epoch).name
        for path in [saved for saved in self.saved() if saved.name <= newest][: -self._keep]:
            remove(path)
            remove(path.with_name(path.name.replace("plan", "rest")))

    def clear_errors(self) -> None:
        """Remove the errors of earlier runs."""
        for path in self.path.glob("plan-*.error"):
            remove(path)

    def resume(self) -> None:
        """Accept the existing plans as plans of this run."""
        self._resumed = True

    def is_undecided(self) -> bool:
        """Return whether it is not known yet if the plans in the folder are of this run."""
        return not (self._begun or self._resumed) and bool(self.saved())

    def begin(self, epoch: int, run: dict[str, Any]) -> None:
        """Begin the run in this process, unless it has begun. Ranks above 0 wait until
        rank 0 has begun.

        Args:
            epoch: the first that is needed. A run that begins with epoch 0 must find no plans,
                unless it resumes. Vectors that an earlier run embedded for it are kept.
            run: describes the run, as JSON values. What two descriptions have in common must agree.

        Raises:
            InputError: the plans are of another run, another run uses the folder now, or the
                process of rank 0 describes the run in another way.
            OutputError: the folder cannot be written to.
            ResourceError: as `wait_for`.
        """
        if self._begun:
            return
        if self.rank:
            self._join(epoch, run)
        else:
            self._start(epoch, run)
        self._begun = True

    def _start(self, epoch: int, run: dict[str, Any]) -> None:
        self._check(epoch, run)
        lock = self._locked(self._run)
        self._check(epoch, run)  # again: another run may have ended meanwhile
        self.start = secrets.token_hex(4)
        self._take_over(epoch if self.saved() else None)
        if not self.saved():
            self._write(lock, json.dumps(run, indent=1, default=str))
        self._lock = lock
        if self.world_size > 1:
            paths = [
                (self._lock_path(rank), self._answer_path(rank))
                for rank in range(1, self.world_size)
            ]
            Thread(target=_answer, args=(paths, self.start, ref(lock)), daemon=True).start()

    def _join(self, epoch: int, run: dict[str, Any]) -> None:
        path, answer = self._lock_path(self.rank), self._answer_path(self.rank)
        said = f"{socket.gethostname()} {secrets.token_hex(8)}\n"

        def answered() -> bool:
            if self._lock is None or not is_at(self._lock, path):  # rank 0 has removed it
                self._lock = None
                self._lock = self._locked(path)
                self._write(self._lock, said)
            return _text(answer).startswith(said)

        self._wait(answered, f"{answer}: no answer", epoch, 0)
        self.start = _text(answer).removeprefix(said)
        remove(answer)
        for name, own, other in self._differences(run):
            raise InputError(
                f"rank {self.rank}: its {name} is {own!r:.120}, but rank 0 has "
                f"{other!r:.120}; give all processes the same options, and the same rows in the "
                "same order"
            )

    def end(self) -> None:
        """End the run in this process."""
        self._lock, self._begun, self._resumed = None, False, False

    def save_error(self, epoch: int, error: BaseException) -> None:
        """Let the other processes fail with an error of this one. Does nothing if they are of
        another run, or failed with it already."""
        if isinstance(error, FailedElsewhereError) or (self._lock is None and is_marked(self._run)):
            return
        said = "" if keyed_url(str(error)) else f": {error}"  # of the user's function
        reason = f"{self._failed}{type(error).__name__}{said}"
        with suppress(Exception):
            content = reason[:_REASON].encode(errors="backslashreplace")
            write_files({self._error_path(epoch): content})

    @property
    def _failed(self) -> str:
        return f"rank {self.rank} failed with "

    def forget_error(self, epoch: int) -> None:
        """Remove the error of this process in an epoch that is planned again."""
        if _text(self._error_path(epoch)).startswith(self._failed):
            remove(self._error_path(epoch))

    def wait_for(self, path: Path, epoch: int, rank: int, instead: Path | None = None) -> None:
        """Wait until the process of a rank has made a file for an epoch, or another one instead.

        Raises:
            ResourceError: the process failed, has ended, or takes longer than ``timeout``.
        """
        paths = [path, instead or path]
        self._wait(lambda: any(map(Path.exists, paths)), f"{path}: not there", epoch, rank)

    def _wait(self, ready: Callable[[], bool], what: str, epoch: int, rank: int) -> None:
        deadline, (pause, most) = time.monotonic() + self.timeout, _PAUSES
        lock = self._lock_path(rank)
        while True:
            # In this order: a process locks its file, writes its host there, makes files, and ends.
            host, locked = _text(lock).partition(" ")[0] if rank else "", is_marked(lock)
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
            lock = hold(path)
        if lock is None:
            raise InputError(
                f"{self.path}: another run plans in this folder now; name another folder, or wait "
                "until that run has ended"
            )
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

    def _answer_path(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.start"

    def _take_over(self, kept: int | None) -> None:
        """Remove the files of earlier runs' processes. Vectors that they embedded for the epoch
        ``kept`` become this run's."""
        for path in self.path.glob("part-*"):
            _, *words, rank = path.stem.split("-")
            if (
                kept is not None
                and words[1:-1] == [f"{self.first(kept):04d}"]
                and words[-1].isdecimal()
            ):
                path.rename(self.part_path(kept, words[-1], int(rank)))
            else:
                remove(path)
        for path in self.path.glob("rank-*"):
            if not is_marked(path):  # else its process waits for this one already
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
        for name, value, got in self._differences(run):
            mend = _MEND
            if self._resumed:
                mend = f"resume with the {name} that the run had, or begin one in another folder"
            raise InputError(
                f"{self.path}: holds the plans of another run, whose {name} is {got!r:.200}, "
                f"expected {value!r:.200}; {mend}"
            )

    def _differences(self, run: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name, the own and the saved value of each difference to ``run.json``."""
        if not self._run.exists():
            raise InputError(
                f"{self._run}: is missing, so that the plans there cannot be compared; {_MEND}"
            )
        try:
            before = parse_json(read_regular(self._run, _MOST, "the description of a run"))
        except ValueError as error:  # InputError is one
            raise InputError(f"{self._run}: damaged ({error}); {_MEND}") from None
        before = before if isinstance(before, dict) else {}
        for name, value in parse_json(json.dumps(run, default=str).encode()).items():
            if (got := before.get(name, value)) != value:
                yield name.replace("_", " "), value, got


def _answer(paths: list[tuple[Path, Path]], start: str, alive: Callable[[], object]) -> None:
    """Answer the announcements of the other processes with the start of the run, until all have
    joined or the run has ended. It is a thread of its own, as the process of rank 0 may train."""
    pause = _PAUSES[0]
    while paths and alive() is not None:
        for lock, answer in list(paths):
            if (said := _text(lock)).endswith("\n"):  # else it is being written
                with suppress(OutputError):
                    write_files({answer: f"{said}{start}".encode()})
                    paths.remove((lock, answer))
        time.sleep(pause)
        pause = min(2 * pause, _ANSWERS)


def _text(path: Path) -> str:
    """The text of a small file; "" if there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
