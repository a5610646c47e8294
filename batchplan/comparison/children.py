"""Runs a planner in its own process, to measure its memory and to survive its failures."""

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
    """The work of a planner's process, passed on in a folder that it shares with its parent.

    Attributes:
        setting: the planner and its options.
        source: the arguments of `load_embeddings` that read the data.
        runtime: device, memory and seed.
    """

    setting: Setting
    source: Mapping[str, Any]
    runtime: Runtime

    def write(self, folder: Path) -> None:
        """Write the job to the folder."""
        runtime = {name: getattr(self.runtime, name) for name in ("device", "memory", "seed")}
        document = {"setting": asdict(self.setting), "source": self.source, "runtime": runtime}
        (folder / JOB).write_text(json.dumps(document, default=os.fspath))

    @classmethod
    def read(cls, folder: Path, observer: Observer) -> Job:
        """Read the job that was written to the folder, and delete its file."""
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
        seconds: from the start of reading the data.
        stages: seconds by stage.
        peak_memory_bytes: host memory of the whole process.
        peak_device_memory_bytes: CUDA memory.
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
        error: the reason, in one line.
    """

    status: int
    error: str


def run_child(job: Job, folder: Path) -> Cost | Failure:
    """Do a job in its own process. If it succeeds, its plan is in the folder, as `PLAN`."""
    job.write(folder)
    started: list[subprocess.Popen[str]] = []
    ends = os.pipe()  # the child ends with this process: see child.py
    watched, held = os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "wb")

    def start() -> None:
        # -P: do not import files of the working directory, such as random.py.
        started.append(
            subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, job.setting.planner, os.fspath(folder)],
                stdin=watched, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace",
            )
        )  # fmt: skip

    # An interrupt can stop the main thread anywhere. A second thread, already running, starts the
    # process completely or not at all, so that it can always be ended.
    with watched, held, ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        try:
            pool.submit(start).result()
            messages = started[0].communicate()[1]
        except BaseException:
            pool.shutdown()
            held.close()  # the child ends with this pipe
            for process in started:
                end_process(process)
            raise
    status = started[0].returncode
    if status:
        return Failure(status, reason(status, messages))
    return Cost(**parse_json((folder / COST).read_bytes()))
