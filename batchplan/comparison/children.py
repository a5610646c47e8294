"""A planner as a process of its own, so that its peak memory and its failures are its own too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from batchplan.comparison.settings import Setting
from batchplan.files.documents import parse_json
from batchplan.planners import PLANNERS
from batchplan.runtime import Observer, Runtime

JOB, PLAN, COST = "job.json", "plan.npz", "cost.json"  # in the folder of a job
_CHILD = "batchplan.cli.child"
_PATIENCE = 2  # seconds that a process has to end


@dataclass(frozen=True)
class Job:
    """What the process of a planner does, in a folder that it shares with the one that starts it.

    Attributes:
        setting: the planner and its options.
        source: the arguments of `load_embeddings` that read the data.
        runtime: device, memory and seed.
    """

    setting: Setting
    source: Mapping[str, Any]
    runtime: Runtime

    def write(self, folder: Path) -> None:
        """Leave it in the folder."""
        runtime = {name: getattr(self.runtime, name) for name in ("device", "memory", "seed")}
        setting = {"name": self.setting.name, "planner": self.setting.planner}
        options = asdict(self.setting.options)
        document = {"setting": setting, "options": options, "source": self.source} | runtime
        (folder / JOB).write_text(json.dumps(document, default=os.fspath))

    @classmethod
    def read(cls, folder: Path, observer: Observer) -> Job:
        """The job that was left in the folder."""
        document = parse_json((folder / JOB).read_bytes(), any_text=True)
        setting, source = document.pop("setting"), document.pop("source")
        options = PLANNERS[setting["planner"]].options(**document.pop("options"))
        return cls(
            Setting(**setting, options=options), source, Runtime(**document, observer=observer)
        )


@dataclass(frozen=True)
class Cost:
    """What a plan took.

    Attributes:
        seconds: from when it began to read the data.
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


def run_child(job: Job, folder: Path) -> Cost | Failure:
    """Do a job in a process of its own; its plan is in the folder, as `PLAN`, unless it failed."""
    job.write(folder)
    born: list[subprocess.Popen[str]] = []
    ends = os.pipe()  # the child ends with this process: see child.py
    watched, held = os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "wb")

    def start() -> None:
        # -P: a file of the working directory, such as random.py, is no module of ours.
        born.append(
            subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, job.setting.planner, os.fspath(folder)],
                stdin=watched, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace",
            )
        )  # fmt: skip

    # An interrupt strikes the main thread, in the middle of anything. In another thread, which is
    # there before, a process is started wholly or not at all, so that it can be ended.
    with watched, held, ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        try:
            pool.submit(start).result()
            said = born[0].communicate()[1]
        except BaseException:
            pool.shutdown()
            held.close()  # which the child takes for our end
            for process in born:
                _end(process)
            raise
    status = born[0].returncode
    if status:
        return Failure(status, _reason(status, said))
    return Cost(**parse_json((folder / COST).read_bytes()))


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
