"""Planned batches in a training loop that uses accelerate.

loader = PlannedLoader(accelerator, dataset, EpochPlans("plans", embed=..., batch_size=64))
accelerator.register_for_checkpointing(loader)
while loader.epoch < epochs:
    for batch in loader:
        with accelerator.accumulate(model):
            ...
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from accelerate import Accelerator
from torch.utils.data import DataLoader

from batchplan.errors import InputError
from batchplan.plans.plan import Plan
from batchplan.training.epochs import EpochPlans
from batchplan.training.sampler import (
    ALL,
    PlanBatchSampler,
    PlanSeries,
    check_rows,
    sole_pass,
)


class PlannedLoader:
    """A loader, prepared by Accelerate, whose passes are the epochs of a plan or of a series.

    It deals out the parts of all devices, so it must not be prepared again. If it is registered for
    checkpointing, `Accelerator.save_state` stores the steps taken in the epoch, and the next pass
    after `Accelerator.load_state` resumes there.

    Args:
        accelerator: the Accelerator of the training.
        dataset: the data set whose rows were planned.
        source: a plan for as many devices as there are processes, its path, or a series such as
            `EpochPlans`.
        options: of the DataLoader, such as ``collate_fn`` and ``num_workers``.

    Attributes:
        epoch: the epoch of the next pass, from 0.
        sampler: the parts of all devices, step after step.
        prepared: the loader that Accelerate returned.

    Raises:
        InputError: the accelerator would cut or deal out the batches again, the plan is for another
            number of devices, or the data set has another number of rows.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        dataset: Any,
        source: Plan | PlanSeries | str | os.PathLike[str],
        **options: Any,
    ) -> None:
        dealing = accelerator.dataloader_config
        wrong = {
            "split_batches": "would cut every batch of the plan",
            "dispatch_batches": "would deal the batches of the plan out twice",
            "use_stateful_dataloader": "would skip the steps before a checkpoint twice",
        }
        for name, problem in wrong.items():
            if getattr(dealing, name):
                raise InputError(
                    f"{name}=True: {problem}; leave it out of the DataLoaderConfiguration"
                )
        devices = accelerator.num_processes
        self._series = source if isinstance(source, PlanSeries) else None
        self.sampler = PlanBatchSampler(source, rank=ALL, world_size=devices)
        if isinstance(source, EpochPlans):
            expected = source.num_rows
        else:
            expected = self.sampler.plan.metadata.num_rows
        if expected is not None:
            check_rows(expected, dataset)
        self.epoch = 0
        self.steps, self._devices = 0, devices
        loader: DataLoader[Any] = DataLoader(dataset, batch_sampler=self.sampler, **options)
        self.prepared: Any = accelerator.prepare(loader)

    def __len__(self) -> int:
        """Steps of an epoch."""
        return len(self.prepared)

    def __iter__(self) -> Iterator[Any]:
        self.sampler.set_epoch(self.epoch)
        self.sampler.start_at(self.steps * self._devices)
        self.prepared.set_epoch(self.epoch)  # it counts epochs itself
        for batch in sole_pass(self.prepared, self):
            self.steps += 1
            yield batch
        self.epoch += 1
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the steps taken in it, and the digest of its plan if there are any."""
        plan = self.sampler.plan.digest if self.steps else None
        return {"epoch": self.epoch, "steps": self.steps, "plan": plan}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where `state_dict` was called.

        Raises:
            InputError: within an epoch, the plan is another or missing.
        """
        if self._series is not None:
            self._series.resume()
        if state["steps"]:
            position = {"position": state["steps"] * self._devices, "parts": ALL}
            self.sampler.load_state_dict({**state, **position})
        self.epoch, self.steps = state["epoch"], state["steps"]
