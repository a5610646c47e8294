"""Runs a planner in its own process, so that its memory is measured and a crash ends only it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from batchplan.comparison.settings import Setting
from batchplan.files.documents import parse_json
from batchplan.planners import PLANNERS
from batchplan.processes import end_process, reason
from batchplan.runtime import Observer, Runtime

JOB, PLAN, COST = "job.json", "plan.npz", "cost.json"  # in the folder of a job
_CHILD = "batchplan.cli.child"


@dataclass(frozen=True)
class Job:
    """The work of a planner's process, which reads it from a folder.

    Attributes:
        setting: the planner and its options.
        source: the arguments of `load_embeddings` that read the data.
        runtime: device, memory and seed.
    """

    setting: Setting
    source: Mapping[str, Any]
    runtime: Runtime

    def write(self, folder: Path) -> None:
        """Write the job to a folder, for `read`."""
        runtime = {name: getattr(self.runtime, name) for name in ("device", "memory", "seed")}
        document = {"setting": asdict(self.setting), "source": self.source, "runtime": runtime}
        (folder / JOB).write_text(json.dumps(document, default=os.fspath))

    @classmethod
    def read(cls, folder: Path, observer: Observer) -> Job:
        """Read the job in a folder, and delete its file."""
        path = folder / JOB
        document = parse_json(path.read_bytes(), any_text=True)
        path.unlink()  # its URLs may have keys
        setting = document["setting"]
        setting["options"] = PLANNERS[setting["planner"]].options(**setting["options"])
        runtime = Runtime(**document["runtime"], observer=observer)
        return cls(Setting(**setting), document["source"], runtime)


@dataclass(frozen=True)
class Cost:
    """The time and memory that a plan took.

    Attributes:
        seconds: from before the data are read until the plan is written.
        stages: seconds by stage.
        peak_memory_bytes: largest host memory of the process.
        peak_device_memory_bytes: largest CUDA memory.
    """

    seconds: float
    stages: dict[str, float]
    peak_memory_bytes: int
    peak_device_memory_bytes: int


@dataclass(frozen=True)
class Failure:
    """A planner that made no plan.

    Attributes:
        status: its exit status; if a signal killed it, minus the number of the signal.
        error: the reason, in one line.
    """

    status: int
    error: str


def run_child(job: Job, folder: Path) -> Cost | Failure:
    """Do a job in its own process, which writes the plan to `PLAN` in the folder."""
    job.write(folder)
    started: list[subprocess.Popen[str]] = []
    ends = os.pipe()  # the child ends when this process ends, see child.py
    watched, held = os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "wb")

    def start() -> None:
        # With -P, files of the working directory, such as random.py, are not imported.
        started.append(
            subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, job.setting.planner, os.fspath(folder)],
                stdin=watched, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace",
            )
        )  # fmt: skip

    # An interrupt may stop the main thread while it starts the process, which then could not be
    # ended. A second thread starts it completely or not at all. `submit(int)` starts this thread.
    with watched, held, ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        try:
            pool.submit(start).result()
            messages = started[0].communicate()[1]
        except BaseException:
            pool.shutdown()
            held.close()  # so the child ends
            for process in started:
                end_process(process)
            raise
    status = started[0].returncode
    if status:
        return Failure(status, reason(status, messages))
    return Cost(**parse_json((folder / COST).read_bytes()))
