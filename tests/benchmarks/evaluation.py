"""What an evaluation costs, stage by stage, beside the float32 product that it needs."""

from __future__ import annotations

import time
from pathlib import Path

import torch

import batchplan
from tests.benchmarks.partition import Stages
from tests.benchmarks.speed.data import real_like

TILE = 1024


def measure(data: Path) -> dict[str, object]:
    """Seconds by stage of 8,192, 25,000 and 50,000 pairs, d = 384, B = 64, and of one product."""
    found: dict[str, object] = {}
    for rows in (8_192, 25_000, 50_000):
        sides = real_like(data, rows)
        embeddings = batchplan.Embeddings.from_arrays(*sides)
        plan = batchplan.plan(embeddings, "random")
        few = batchplan.Embeddings.from_arrays(*(side[:512] for side in sides))
        batchplan.evaluate(batchplan.plan(few, "random"), few)  # compiles
        stages = Stages()
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
