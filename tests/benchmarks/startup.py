"""How long the command line takes to say anything."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path


def measure(data: Path) -> dict[str, object]:
    """Median of 9 runs of --help and --version, in seconds."""
    return {
        flag: _median([sys.executable, "-m", "batchplan", flag]) for flag in ("--help", "--version")
    }


def _median(command: list[str]) -> float:
    taken = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
