"""One training run: embed, plan and train in turn, and judge by rows that were held out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.training.models import Training, embed, reciprocal_rank
from tests.benchmarks.training.plans import arguments, plan, write
from tests.benchmarks.training.setups import BATCH_SIZE, Setup


def trained(setup: Setup, setting: str, *, epochs: int, seed: int, folder: Path) -> dict[str, Any]:
    """What became of a model: its score after each epoch, and what the epochs cost."""
    torch.manual_seed(seed)
    train, held_out = setup.train, setup.held_out
    steps = epochs * -(-len(train.x) // BATCH_SIZE)
    training = Training(setup.model(), train.x, train.y, steps=steps, rate=setup.rate)
    dump, made = folder / "rows.parquet", None
    scores, losses = [], []
    clock = {"embed": 0.0, "plan": 0.0, "train": 0.0}
    for epoch in range(epochs):
        start = time.perf_counter()
        write(dump, *embed(training.model, train.x, train.y), train.labels)
        clock["embed"] += time.perf_counter() - start
        words = arguments(setting, epoch, epochs, made)
        # shuffled tells epochs apart by itself; of the others each takes its own seed
        drawn = seed if "--epoch" in words else 1000 * seed + epoch
        made = folder / f"{epoch}.npy"
        batches, seconds = plan(words, dump, made, batch_size=BATCH_SIZE, seed=drawn)
        clock["plan"] += seconds
        start = time.perf_counter()
        losses.append(training.epoch(batches))
        clock["train"] += time.perf_counter() - start
        scores.append(reciprocal_rank(*embed(training.model, held_out.x, held_out.y)))
    return {"seed": seed, "mrr": scores[-1], "scores": scores, "losses": losses, "seconds": clock}
