"""A worker of a Ray cluster is killed while 200,000 pairs are planned.

    PYTHONPATH=. python -m tests.benchmarks ray-kill --data FOLDER

The folder holds queries.npy and codes.npy; without them, the rows are blends of random ones.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from batchplan import Plan, load_embeddings, plan

ROWS, MEGA_BATCHES = 200_000, 8
AFTER = 0.3  # of the time that the run without Ray takes, when the worker is killed


def measure(data: Path) -> dict[str, object]:
    """kill -9 of a Ray worker in a run of 200,000 pairs ends in the plan of a single process."""
    with tempfile.TemporaryDirectory() as folder:
        paths = _blends(data, Path(folder))
        embeddings = load_embeddings(*paths)
        seconds, alone = _timed(embeddings, None)
        killed: list[int] = []
        timer = threading.Timer(AFTER * seconds, lambda: killed.append(_kill_one()))
        timer.daemon = True
        timer.start()
        on_ray, there = _timed(embeddings, "local")
        return {
            "rows": ROWS,
            "mega-batches": MEGA_BATCHES,
            "seconds without Ray": seconds,
            "seconds with Ray": on_ray,
            "workers killed": len(killed),
            "the same plan": bool(
                np.array_equal(alone.rows, there.rows) and alone.metadata == there.metadata
            ),
        }


def _timed(embeddings: object, ray: str | None) -> tuple[float, Plan]:
    options = {"mega_batches": MEGA_BATCHES, "batch_size": 64, "device": "cpu"}
    began = time.perf_counter()
    made = plan(embeddings, ray=ray, **options)
    return time.perf_counter() - began, made


def _blends(data: Path, folder: Path) -> list[Path]:
    """Rows between random pairs of rows of the data."""
    rng, paths = np.random.default_rng(0), []
    names = [data / name for name in ("queries.npy", "codes.npy")]
    if all(path.exists() for path in names):
        sides = [np.load(path).astype(np.float32) for path in names]
    else:
        x = rng.standard_normal((8192, 384), np.float32)
        sides = [x, x + rng.standard_normal(x.shape, np.float32)]
    first, second = rng.integers(0, len(sides[0]), (2, ROWS))
    share = rng.random((ROWS, 1), np.float32)
    for number, side in enumerate(sides):
        paths.append(folder / f"{number}.npy")
        np.save(paths[-1], (share * side[first] + (1 - share) * side[second]).astype(np.float16))
    return paths


def _kill_one() -> int:
    """Kill a worker that is at work, below this process; its number."""
    while True:
        for process in _below(os.getpid()):
            name = Path(f"/proc/{process}/cmdline").read_bytes()
            if name.startswith(b"ray::work"):
                os.kill(process, signal.SIGKILL)
                return process
        time.sleep(0.2)


def _below(parent: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have."""
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _below(child)
