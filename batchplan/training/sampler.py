"""The batches of a plan, for a PyTorch DataLoader."""

import operator
import os
from collections.abc import Iterator
from typing import SupportsIndex

from batchplan.errors import InputError
from batchplan.plans import Plan, PlanMetadata
from batchplan.plans.steps import batches_per_step, share_offsets


class PlanBatchSampler:
    """Yields the batches of a plan, or one device's part of them, in its order, every epoch.

        loader = DataLoader(dataset, batch_sampler=PlanBatchSampler("plan.npy"))

    Args:
        plan_or_path: a plan, or the path of one.
        batch_size: for a path only; needed if the file has no metadata, see `Plan.load`.
        rank: number of this device, from 0, in a plan for several devices: its batches, or under
            the scope ``global`` its contiguous part of each.
        world_size: number of devices, which must be that of the plan.

    Attributes:
        plan: the plan.
        batch_size: the most rows that this device gets in a step.

    Raises:
        InputError: the file cannot be loaded, or its batch size is not ``batch_size``; a plan for
            another number of devices, or a rank that is none of them.
    """

    def __init__(
        self,
        plan_or_path: Plan | str | os.PathLike[str],
        *,
        batch_size: int | None = None,
        rank: SupportsIndex | None = None,
        world_size: SupportsIndex | None = None,
    ) -> None:
        if isinstance(plan_or_path, Plan):
            self.plan = plan_or_path
        else:
            self.plan = Plan.load(plan_or_path, batch_size=batch_size)
        made = self.plan.metadata
        self.rank = _check_rank(made, rank, world_size)
        self.batch_size = made.batch_size
        if made.scope == "global":
            self.batch_size = -(-made.batch_size // made.world_size)

    def __len__(self) -> int:
        made = self.plan.metadata
        return len(self.plan) // batches_per_step(made.world_size, made.scope)

    def __iter__(self) -> Iterator[list[int]]:
        made = self.plan.metadata
        for number, batch in enumerate(self.plan.batches()):
            if made.scope == "global":
                offsets = share_offsets(len(batch), made.world_size)
                yield batch[offsets[self.rank] : offsets[self.rank + 1]].tolist()
            elif number % made.world_size == self.rank:
                yield batch.tolist()


def _check_rank(
    made: PlanMetadata, rank: SupportsIndex | None, world_size: SupportsIndex | None
) -> int:
    """The rank as a number; 0 if the plan is for one device and none is given."""
    devices = made.world_size
    alone = rank is None and world_size is None
    if alone and devices > 1:
        raise InputError(
            f"rank: not given, but the plan is for {devices} devices; pass rank=..., "
            f"world_size={devices}, as from torch.distributed.get_rank() and get_world_size()"
        )
    given = _integer("world size", 1 if alone else world_size)
    if given != devices:
        raise InputError(
            f"world size: got {given}, but the plan is for {devices} device{'s' * (devices > 1)}; "
            f"plan again with --world-size {given} (world_size={given} in Python)"
        )
    number = _integer("rank", 0 if alone else rank)
    if not 0 <= number < devices:
        raise InputError(f"rank: got {number}, expected from 0 to {devices - 1}")
    return number


def _integer(name: str, value: SupportsIndex | None) -> int:
    try:
        if not isinstance(value, bool | None):
            return operator.index(value)
    except TypeError:
        pass
    raise InputError(f"{name}: got {value!r}, expected an integer; pass both rank and world_size")
