"""Wall time of planned epochs over that of shuffled ones, on simulated devices.

    python -m tests.benchmarks.training.overhead --rows 100000 --devices 1 4 8

Each device is a process. Its training step sleeps for 50 ms, its forward pass of 64 rows for 17 ms,
as if a GPU computed, so the processors stay idle. All else is real: vectors are recorded, passed
through files, and planned with `partition` on the processors of this machine. What a process does
during a step, such as recording, costs nothing if it takes less time than the step, as with a GPU.
The vectors are those of random clusters and do not change.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FORWARD, STEP, BATCH, DIM = 0.017, 0.050, 64, 384  # seconds of a batch; rows of a device; numbers
WAYS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "fresh": {"embeddings": "fresh"},
    "training": {"embeddings": "training"},
    "ahead": {"embeddings": "training"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--ahead", type=float, default=0.1)
    parser.add_argument("--every", type=int, default=1, help="epochs that share a plan, for ahead")
    parser.add_argument("--epochs", type=int, default=2, help="timed, or groups of --every")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        write_vectors(Path(folder), options.rows)
        for devices in options.devices:
            base = None
            for way in options.ways:
                setting = dict(WAYS[way])
                if way == "ahead":
                    setting |= {"ahead": options.ahead, "every": options.every}
                found = measure(Path(folder), options.rows, devices, setting, options.epochs)
                base = base or found["epoch"]
                found = {
                    "rows": options.rows, "devices": devices, "way": way, **setting, **found,
                    "ratio": found["epoch"] / base,
                }  # fmt: skip
                print(json.dumps(found), flush=True)


def write_vectors(folder: Path, rows: int) -> None:
    """Save pairs near 1,000 centres, two float16 arrays (rows, DIM)."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1000, DIM), np.float32)
    sides = [
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float16, (rows, DIM))
        for name in "xy"
    ]
    for start in range(0, rows, 10_000):
        count = min(10_000, rows - start)
        own = centres[rng.integers(1000, size=count)]
        own += rng.standard_normal((count, DIM), np.float32)
        for side in sides:
            side[start : start + count] = own + 0.7 * rng.standard_normal((count, DIM), np.float32)


def measure(
    folder: Path, rows: int, devices: int, setting: dict[str, Any], epochs: int
) -> dict[str, Any]:
    """The seconds of the first epoch, and of a later one, with the peak memory of rank 0."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["batchplan.training.epochs", "torch", __name__])
    barrier, answers = context.Barrier(devices), context.Queue()
    with tempfile.TemporaryDirectory(dir=folder) as plans:
        arguments = folder, plans, rows, devices, setting, epochs, barrier, answers
        processes = [
            context.Process(target=train, args=(rank, *arguments)) for rank in range(devices)
        ]
        for process in processes:
            process.start()
        first, later, memory = answers.get(timeout=4 * 3600)
        for process in processes:
            process.join()
    return {"first": first, "epoch": later, "memory": memory}


def train(
    rank: int, folder: Path, plans_folder: str, rows: int, devices: int, setting: dict[str, Any],
    epochs: int, barrier: Any, answers: Any,
) -> None:  # fmt: skip
    """One device."""
    import torch

    from batchplan.plans import Batching, Plan
    from batchplan.training import EpochPlans, PlanBatchSampler

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")

    def embed(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(FORWARD * len(numbers) / BATCH)
        return x[numbers], y[numbers]

    place = {"rank": rank, "world_size": devices}
    options = {"batch_size": BATCH, "tail": "drop"}
    every = setting.get("every", 1)
    count = every * (1 + epochs)
    plans = None
    if setting:
        plans = EpochPlans(
            plans_folder, embed=embed, num_rows=rows, epochs=count,
            **place, **options, **setting,
        )  # fmt: skip
    shuffled = Plan.cut(
        np.random.default_rng(0).permutation(rows), Batching(world_size=devices, **options),
        num_rows=rows,
    )  # fmt: skip
    sampler = PlanBatchSampler(shuffled if plans is None else plans, **place)
    recorded = plans if setting.get("embeddings") == "training" else None
    seconds = []
    for epoch in range(count):
        barrier.wait()
        began = time.perf_counter()
        sampler.set_epoch(epoch)
        for numbers in sampler:
            step = time.perf_counter()
            if recorded is not None:
                recorded.record(numbers, x[numbers], y[numbers])
            time.sleep(max(0.0, step + STEP - time.perf_counter()))
        barrier.wait()
        seconds.append(time.perf_counter() - began)
    if plans is not None:
        plans.end()
    if rank == 0:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answers.put((seconds[0], sum(seconds[every:]) / (count - every), memory))


if __name__ == "__main__":
    main()
