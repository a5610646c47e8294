"""Runs a planner in its own process, so that its memory is measured and a crash ends only it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from batchplan.comparison.settings import Setting
from batchplan.files.documents import parse_json
from batchplan.processes import reason
from batchplan.runtime import Runtime

_CHILD = "batchplan.cli.child"


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


def run_child(
    setting: Setting, source: Mapping[str, Any], runtime: Runtime, plan: Path
) -> Cost | Failure:
    """Run a planner in its own process, which ends with this one.

    Args:
        setting: the planner and its options.
        source: the arguments of `load_embeddings` that read the data.
        runtime: device, memory and seed.
        plan: the file that the process writes.
    """
    how = {name: getattr(runtime, name) for name in ("device", "memory", "seed")}
    job = {"setting": asdict(setting), "source": source, "runtime": how, "plan": plan}
    watched, held = os.pipe()  # the child ends when ``held`` is closed, see child.py
    try:
        done = subprocess.run(
            # With -P, files of the working directory, such as random.py, are not imported.
            [sys.executable, "-P", "-m", _CHILD, setting.planner, str(watched)],
            input=json.dumps(job, default=os.fspath), capture_output=True, pass_fds=[watched],
            encoding="utf-8", errors="replace",
        )  # fmt: skip
    finally:  # an interrupt may stop `run` before it could end the child
        os.close(held)
        os.close(watched)
    if done.returncode:
        return Failure(done.returncode, reason(done.returncode, done.stderr))
    return Cost(**parse_json(done.stdout.encode()))
