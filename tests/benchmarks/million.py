"""The paper's largest single-GPU run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from tests.benchmarks.memory import plan_random_rows

ROWS, DIM, NEIGHBORS = 1_000_000, 768, 512


def measure(data: Path) -> dict[str, object]:
    """N = 10^6, d = 768, 512 a row on a GPU (GCBS table 11: 1,013 s on one A40)."""
    if not torch.cuda.is_available():
        return {"device": "no CUDA device here: not measured"}
    with tempfile.TemporaryDirectory() as folder:
        summary = plan_random_rows(Path(folder), ROWS, DIM, NEIGHBORS, "--device", "cuda")
    return {
        "device": torch.cuda.get_device_name(),
        "seconds (goal 10, at most 60)": summary["seconds_total"],
        **{f"seconds, {stage}": taken for stage, taken in summary["seconds"].items()},
        "peak device memory, GB": summary["peak_device_memory_bytes"] / 1e9,
        "peak host memory, GB": summary["peak_memory_bytes"] / 1e9,
    }
