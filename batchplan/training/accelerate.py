"""Planned batches in a training loop that uses accelerate.

loader = PlannedLoader(accelerator, dataset, EpochPlans("plans", embed=..., batch_size=64))
accelerator.register_for_checkpointing(loader)
while loader.epoch < epochs:
    for batch in loader:
        with accelerator.accumulate(model):
            ...
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from accelerate import Accelerator
from torch.utils.data import DataLoader

from batchplan.errors import InputError
from batchplan.plans.plan import Plan
from batchplan.training.checks import check_same_everywhere
from batchplan.training.epochs import EpochPlans
from batchplan.training.multi_dataset import MultiDatasetPlans
from batchplan.training.sampler import ALL, PlanBatchSampler

_UNDOES = {
    "split_batches": "would cut every batch of the plan",
    "dispatch_batches": "would deal the batches of the plan out twice",
    "use_stateful_dataloader": "would skip the steps before a checkpoint twice",
}


class PlannedLoader:
    """A prepared loader whose passes are the epochs of a plan or of a series.

    Do not prepare it again. If it is registered for checkpointing, `Accelerator.save_state` stores
    the steps taken in the epoch, and the next pass after `Accelerator.load_state` resumes there.

    Args:
        accelerator: the Accelerator of the training.
        dataset: the data set whose rows were planned.
        source: a plan for as many devices as there are processes, its path, or a series of plans.
        options: options of the DataLoader, such as ``collate_fn`` and ``num_workers``.

    Attributes:
        epoch: the epoch of the next pass, from 0.
        steps: number of steps taken in the epoch.
        sampler: the parts of all devices, step after step.
        prepared: the loader that Accelerate returned.

    Raises:
        InputError: the accelerator would cut or distribute the batches again, the plan is for
            another number of devices, the data set has another number of rows, or the processes
            have different plans or data sets.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        dataset: Any,
        source: Plan | EpochPlans | MultiDatasetPlans | str | os.PathLike[str],
        **options: Any,
    ) -> None:
        for name, problem in _UNDOES.items():
            if getattr(accelerator.dataloader_config, name):
                raise InputError(f"{name}=True: {problem}; leave it out")
        self._devices = accelerator.num_processes
        devices = self._devices
        self.sampler = PlanBatchSampler(source, rank=ALL, world_size=devices, dataset=dataset)
        check_same_everywhere(self.sampler, dataset)
        self.epoch = self.steps = 0
        loader: DataLoader[Any] = DataLoader(dataset, batch_sampler=self.sampler, **options)
        self.prepared: Any = accelerator.prepare(loader)

    def __len__(self) -> int:
        """Steps of an epoch."""
        return len(self.prepared)

    @property
    def dataset(self) -> Any:
        """None: `accelerate.skip_first_batches` asks for it, and would lose the epoch.

        Raises:
            AttributeError: so that `hasattr` says no.
        """
        raise AttributeError(
            "loader: has no dataset, as skip_first_batches needs; register the loader for "
            "checkpointing, so that load_state resumes within the epoch, or set loader.epoch and "
            "loader.steps before the pass"
        )

    def __iter__(self) -> Iterator[Any]:
        self.sampler.set_epoch(self.epoch)
        self.sampler.start_at(self.steps * self._devices)
        self.prepared.set_epoch(self.epoch)  # it counts epochs itself
        for batch in self.prepared:
            self.steps += 1
            yield batch
        self.epoch += 1
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the steps taken in it, and the digest of its plan; if there are none,
        that of the epoch before, if it is known."""
        return {**self.sampler.state_dict(), "epoch": self.epoch, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where `state_dict` was called.

        Raises:
            InputError: within an epoch, the plan is another or missing; between epochs, a series
                has another plan of the epoch before.
        """
        if state["steps"] or self.sampler.series is not None:
            position = {"position": state["steps"] * self._devices, "parts": ALL}
            self.sampler.load_state_dict({**state, **position})
        self.epoch, self.steps = state["epoch"], state["steps"]
