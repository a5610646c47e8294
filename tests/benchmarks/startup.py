"""How long the command line takes to say anything."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 9  # of each command


def measure(data: Path) -> dict[str, object]:
    """Medians of `RUNS` runs of --help and --version, in seconds; processor time of --help against
    that of importing typer alone, which should stay below 3."""
    helped, processor = _medians("-m", "batchplan", "--help")
    return {
        "--help": helped,
        "--version": _medians("-m", "batchplan", "--version")[0],
        "--help / import typer": processor / _medians("-c", "import typer")[1],
    }


def _medians(*arguments: str) -> tuple[float, float]:
    """Wall time and processor time of a Python process."""
    runs = [_seconds([sys.executable, *arguments]) for _ in range(RUNS)]
    wall, processor = (statistics.median(times) for times in zip(*runs, strict=True))
    return wall, processor


def _seconds(command: list[str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
