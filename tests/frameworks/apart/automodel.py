"""The recipe of docs/frameworks.md for NeMo Automodel: its loader, on plans of epochs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from nemo_automodel.components.datasets.loader import DataloaderConfig

from batchplan.training import EpochPlans, PlanBatchSampler
from tests.frameworks.numbers import ROWS, Rows


@dataclass
class PlannedBatches:
    """What a DataloaderConfig takes as its ``batch_sampler_config``."""

    plans: EpochPlans

    def build(self, *, dataset_len, rank, world_size):
        return PlanBatchSampler(self.plans, rank=rank, world_size=world_size)


@dataclass
class Numbers:
    """What it takes as its ``dataset_config``."""

    def build(self):
        return Rows()


def embed(rows):
    return np.stack([np.sin(rows), np.cos(rows)], axis=1)


def train(folder, rank, world_size, workers):
    """The rows that each step of two epochs trains on."""
    plans = EpochPlans(
        folder / "plans", embed=embed, num_rows=ROWS, batch_size=4, tail="drop", rank=rank,
        world_size=world_size,
    )  # fmt: skip
    config = DataloaderConfig(
        Numbers(), batch_sampler_config=PlannedBatches(plans), num_workers=int(workers),
        collate_fn=np.array,
    )  # fmt: skip
    loader = config.build(dp_rank=rank, dp_world_size=world_size)
    seen = []
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        seen += [batch.astype(int).tolist() for batch in loader]
    return seen
