"""What an evaluation costs, stage by stage, beside the float32 product that it needs."""

from __future__ import annotations

import time
from pathlib import Path

import torch

import batchplan
from batchplan.quality.metrics import texts
from batchplan.quality.options import USUAL_SAMPLE
from batchplan.runtime import peak_memory
from tests.benchmarks.speed.data import real_like
from tests.observing import Observer

TILE = 1024


def measure(data: Path) -> dict[str, object]:
    """Seconds by stage of 8,192, 25,000 and 50,000 pairs, d = 384, B = 64, and of one product."""
    found: dict[str, object] = {}
    for rows in (8_192, 25_000, 50_000):
        sides = real_like(data, rows)
        embeddings = batchplan.Embeddings.from_arrays(*sides)
        plan = batchplan.plan(embeddings, planner="random")
        few = batchplan.Embeddings.from_arrays(*(side[:512] for side in sides))
        batchplan.evaluate(batchplan.plan(few, planner="random"), few)  # compiles
        stages = Observer()
        began = time.perf_counter()
        batchplan.evaluate(plan, embeddings, observer=stages)
        stages.seconds["total"] = time.perf_counter() - began
        x, y = (torch.from_numpy(side).float() for side in sides)
        began = time.perf_counter()
        for block in x.split(TILE):
            for keys in y.split(TILE):
                torch.mm(block, keys.T)
        stages.seconds["one float32 product alone"] = time.perf_counter() - began
        for stage, seconds in stages.seconds.items():
            found[f"{rows:,} pairs: {stage}, seconds"] = seconds
    return found


def measure_scale(data: Path) -> dict[str, object]:
    """Estimates from 4,096 of 25,000 and of 100,000 pairs, d = 384, B = 64; seconds and errors."""
    return {**_sampled(data, 25_000), **_sampled(data, 100_000)}


def measure_scale_million(data: Path) -> dict[str, object]:
    """The same of 1,000,000 pairs (goal: 180 seconds on 2 cores)."""
    return _sampled(data, 1_000_000)


def _sampled(data: Path, rows: int) -> dict[str, object]:
    """Seconds by stage, peak memory, and the estimates with their standard errors."""
    embeddings = batchplan.Embeddings.from_arrays(*real_like(data, rows))
    plan = batchplan.plan(embeddings, planner="random")
    few = batchplan.Embeddings.from_arrays(*(real_like(data, 512)))
    batchplan.evaluate(batchplan.plan(few, planner="random"), few, sample=128)  # compiles
    stages = Observer()
    began = time.perf_counter()
    found = batchplan.evaluate(plan, embeddings, sample=USUAL_SAMPLE, observer=stages)
    stages.seconds["total"] = time.perf_counter() - began
    shown = texts(found)
    figures = ("loss_global", "gap_reduction", "loss_oracle", "hard_negative_recall.1")
    name = f"{rows:,} pairs"
    return {
        **{f"{name}: {stage}, seconds": taken for stage, taken in stages.seconds.items()},
        f"{name}: peak memory of the process, GB": peak_memory() / 1e9,
        **{f"{name}: {figure}": shown[figure] for figure in figures},
    }
