"""Losses and gap reduction on real pairs."""

from __future__ import annotations

import time
from pathlib import Path

import batchplan


def load(folder: Path) -> batchplan.Embeddings:
    """The pairs of a folder: queries.npy and codes.npy, or pairs.parquet."""
    if (folder / "queries.npy").exists():
        return batchplan.load_embeddings(folder / "queries.npy", folder / "codes.npy")
    return batchplan.load_embeddings(folder / "pairs.parquet")


def measure(data: Path) -> dict[str, object]:
    """Losses and gap reduction on real pairs, batch 64, temperature 0.05."""
    embeddings = load(data)
    batchplan.plan(embeddings, planner="gcbs")  # compiles
    began = time.perf_counter()
    plan = batchplan.plan(embeddings, planner="gcbs")
    planned = time.perf_counter() - began
    one = batchplan.evaluate(plan, embeddings)
    return {
        "rows": embeddings.num_rows,
        "loss of random batches": one.loss_random,
        "loss over all rows": one.loss_global,
        "loss of the oracle": one.loss_oracle,
        "loss of gcbs": one.loss_train,
        "gap reduction of gcbs": one.gap_reduction,
        "oracle share of gcbs": one.oracle_share,
        "seconds to plan": planned,
    }
