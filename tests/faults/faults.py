"""Operations on files that fail: the n-th of a kind, once or for ever, before or after its effect.

Everything runs for real, on real files; only the chosen call is made to fail.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

OPERATIONS = ("open", "write", "fsync", "fchmod", "link", "replace", "unlink", "mkdir")
KILLED = 99  # status of a process that ended in the middle of an operation


@dataclass(frozen=True)
class Fault:
    """What happens at an operation.

    Attributes:
        how: an errno; ``signal``: Ctrl-C; ``kill``: the process ends; ``short``: half is written.
        after: whether the operation has taken effect before.
        ever: whether all later operations of the kind fail too.
    """

    how: int | str
    after: bool = False
    ever: bool = False

    def __str__(self) -> str:
        how = errno.errorcode[self.how] if isinstance(self.how, int) else self.how
        return how + "-after" * self.after + "-for-ever" * self.ever

    def strike(self) -> None:
        if self.how == "signal":
            signal.raise_signal(signal.SIGINT)
        elif self.how == "kill":
            os._exit(KILLED)
        elif isinstance(self.how, int):
            raise OSError(self.how, os.strerror(self.how))


ERRORS = [
    *(Fault(code, after) for code in (errno.ENOSPC, errno.EIO) for after in (False, True)),
    *(Fault(code) for code in (errno.EACCES, errno.EBUSY)),
    *(Fault(errno.EIO, ever=True),),
]
SIGNALS = [Fault("signal"), Fault("signal", after=True)]
KILLS = [Fault("kill")]  # after an operation is before the next one
SHORT = [Fault("short")]


class Injector:
    """Counts the operations of a kind below a folder, and lets one of them fail.

    Attributes:
        seen: how many there were.
        fired: how many failed.
    """

    def __init__(self, monkeypatch: Any, folder: Path) -> None:
        self._folder = str(folder)
        self._operation = ""
        self._nth = 0
        self._fault = Fault("short")
        self.seen = 0
        self.fired = 0
        for name in ("fsync", "fchmod", "link", "replace", "unlink", "mkdir"):
            monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))
        monkeypatch.setattr(os, "open", self._failing("open", os.open))
        monkeypatch.setattr(builtins, "open", self._open_function(builtins.open))

    def arm(self, operation: str, nth: int, fault: Fault) -> None:
        """Let the ``nth`` operation of a kind fail, counted from 1 and from now on."""
        self._operation, self._nth, self._fault = operation, nth, fault
        self.seen = self.fired = 0

    def how(self) -> tuple[str, str, int, Fault]:
        """What `armed` needs to do the same in another process."""
        return self._folder, self._operation, self._nth, self._fault

    def disarm(self) -> None:
        self._operation = ""

    def _strikes(self, operation: str) -> bool:
        if operation != self._operation:
            return False
        self.seen += 1
        hit = self.seen >= self._nth if self._fault.ever else self.seen == self._nth
        self.fired += hit
        return hit

    def _ours(self, subject: Any) -> bool:
        """Whether a path, or what a descriptor stands for, lies in the folder."""
        if isinstance(subject, int):
            subject = os.readlink(f"/proc/self/fd/{subject}")
        return os.fspath(subject).startswith(self._folder)

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def failing(subject: Any, *arguments: Any, **named: Any) -> Any:
            if not (self._operation == name and self._ours(subject) and self._strikes(name)):
                return real(subject, *arguments, **named)
            if not self._fault.after:
                self._fault.strike()
            try:
                return real(subject, *arguments, **named)
            finally:
                if self._fault.after:
                    self._fault.strike()

        return failing

    def _open_function(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if "b" not in mode or "r" in mode or not self._ours(path):
                return real(path, mode, *arguments, **named)
            file = self._failing("open", _File)(path, mode.replace("b", ""))
            file.injector = self
            return file if named.get("buffering") == 0 else io.BufferedWriter(file)

        return opened

    def write(self, real: Callable[[Any], int], data: Any) -> int:
        """One write to a file, which may fail or be short."""
        if not self._strikes("write"):
            return real(data)
        if self._fault.how == "short":
            return real(memoryview(data).cast("B")[: max(1, len(data) // 2)])
        if not self._fault.after:
            self._fault.strike()
        written = real(data)
        if self._fault.after:
            self._fault.strike()
        return written


def armed(how: tuple[str, str, int, Fault], work: Callable[[], object]) -> None:
    """Do some work with an `Injector` that is armed so."""
    folder, operation, nth, fault = how
    Injector(pytest.MonkeyPatch(), Path(folder)).arm(operation, nth, fault)
    work()


class _File(io.FileIO):
    """A real file whose writes go through the injector."""

    injector: Injector

    def write(self, data: Any) -> int:
        return self.injector.write(super().write, data)
