"""A planner as a process of its own, so that its peak memory and its failures are its own too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from batchplan.comparison.settings import Setting

_PATIENCE = 2  # seconds that a process has to end


@dataclass(frozen=True)
class Cost:
    """What a plan took.

    Attributes:
        seconds: of the whole command.
        stages: seconds by stage.
        peak_memory_bytes: of host memory, all of the process.
        peak_device_memory_bytes: of CUDA memory.
    """

    seconds: float
    stages: dict[str, float]
    peak_memory_bytes: int
    peak_device_memory_bytes: int


@dataclass(frozen=True)
class Failure:
    """A planner that made no plan.

    Attributes:
        status: its exit status; minus the number of the signal that killed it.
        error: one line that says why.
    """

    status: int
    error: str


def run_child(setting: Setting, arguments: Sequence[str], output: Path) -> Cost | Failure:
    """Run the command of a planner; its plan is at ``output`` unless it failed.

    Args:
        setting: the planner and its options.
        arguments: the embeddings and all other options, as on the command line.
        output: a path of a plan.
    """
    flags = flags_of(type(setting.options), setting.given)
    command = [setting.planner, *flags, "--quiet", "--json", f"--output={output}", *arguments]
    born: list[subprocess.Popen[str]] = []
    ends = os.pipe()  # the child ends with this process: see child.py
    watched, held = os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "wb")

    def start() -> None:
        # -P: a file of the working directory, such as random.py, is no module of ours.
        born.append(
            subprocess.Popen(
                [sys.executable, "-P", "-m", "batchplan.comparison.child", *command],
                stdin=watched, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace",
            )
        )  # fmt: skip

    # An interrupt strikes the main thread, in the middle of anything. In another thread, which is
    # there before, a process is started wholly or not at all, so that it can be ended.
    with watched, held, ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        try:
            pool.submit(start).result()
            printed, said = born[0].communicate()
        except BaseException:
            pool.shutdown()
            held.close()  # which the child takes for our end
            for process in born:
                _end(process)
            raise
    status = born[0].returncode
    if status:
        return Failure(status, _reason(status, said))
    summary = json.loads(printed)
    return Cost(
        summary["seconds_total"],
        summary["seconds"],
        summary["peak_memory_bytes"],
        summary["peak_device_memory_bytes"],
    )


def flags_of(kind: Any, values: Mapping[str, Any]) -> list[str]:
    """The options of a dataclass as a command line gives them; None gives none.

    Args:
        kind: the dataclass, whose fields are options as `batchplan.options.option` makes them.
        values: some of them by field.
    """
    return [
        flag
        for field in fields(kind)
        if values.get(field.name) is not None
        for flag in _flags(field, values[field.name])
    ]


def _flags(field: Any, value: Any) -> Iterator[str]:
    own = [flag for flag in field.metadata.get("flags", ()) if flag.startswith("--")]
    flag = own[0] if own else f"--{field.name.replace('_', '-')}"
    if value is True:
        yield flag
    elif value is False:
        yield f"--no-{flag[2:]}"
    else:
        for one in value if isinstance(value, list) else [value]:
            yield f"{flag}={one}"


def _end(process: subprocess.Popen[str]) -> None:
    """Let it end by itself, then interrupt it, so that it removes what it began to write, then kill
    it."""
    for number in (0, signal.SIGTERM):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_PATIENCE)
    process.kill()
    process.wait()


def _reason(status: int, said: str) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        return f"killed by {name}" + ", out of memory perhaps" * (name == "SIGKILL")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else f"exit status {status}, no message"
