"""One training run: embed, plan and train in turn, and judge by rows that were held out."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import torch

from batchplan import Plan
from tests.benchmarks.training.figures import Met, figures
from tests.benchmarks.training.models import Training, embed, reciprocal_rank
from tests.benchmarks.training.plans import arguments, batch_size, plan, write
from tests.benchmarks.training.setups import Setup


def trained(
    setup: Setup,
    setting: str,
    *,
    epochs: int,
    rate: float,
    seed: int,
    folder: Path,
    measured: bool = False,
) -> dict[str, Any]:
    """What became of a model: its score after each epoch, the seconds that each cost, and the
    bytes that a step keeps for its backward pass.

    Args:
        rate: the learning rate at first.
        measured: whether the figures of every plan are taken, too, outside the clock.
    """
    torch.manual_seed(seed)
    train, held_out = setup.train, setup.held_out
    steps = epochs * -(-len(train.x) // batch_size(setting))
    training = Training(setup.model(), train.x, train.y, steps=steps, rate=rate)
    dump, first = folder / "rows.parquet", folder / "first.parquet"
    scores, losses, told = [], [], []
    met = Met(len(train.x) if measured else 0)
    clock: dict[str, list[float]] = {"embed": [], "plan": [], "train": []}
    for epoch in range(epochs):
        start = time.perf_counter()
        x, y = embed(training.model, train.x, train.y)
        write(dump, x, y, train.labels)
        clock["embed"].append(time.perf_counter() - start)
        if epoch == 0:
            shutil.copyfile(dump, first)
        words = arguments(setting, epoch, epochs, first)
        # shuffled tells epochs apart by itself; of the others each takes its own seed
        drawn = seed if "--epoch" in words else 1000 * seed + epoch
        made = folder / f"{epoch}.npy"
        batches, seconds = plan(words, dump, made, drawn)
        clock["plan"].append(seconds)
        if measured:
            told.append(figures(Plan.load(made), x, y, met, whole=epoch == 0))
        kept = training.kept(batches[0])
        start = time.perf_counter()
        losses.append(training.epoch(batches))
        clock["train"].append(time.perf_counter() - start)
        scores.append(reciprocal_rank(*embed(training.model, held_out.x, held_out.y)))
    return {
        "mrr": scores[-1], "scores": scores, "losses": losses,
        "seconds": clock, "bytes": kept, "figures": told,
    }  # fmt: skip
