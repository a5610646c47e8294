"""The batches of a plan, as a PyTorch DataLoader takes them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from batchplan.plans import Plan


class PlanBatchSampler:
    """Yields the batches of a plan, in its order, every epoch.

        loader = DataLoader(dataset, batch_sampler=PlanBatchSampler("plan.npy"))

    Args:
        plan_or_path: a plan, or the path of one.
        batch_size: for a path only; needed where the file has no metadata, see `Plan.load`.

    Raises:
        InputError: the file cannot be loaded, or its batch size is not ``batch_size``.
    """

    def __init__(
        self, plan_or_path: Plan | str | os.PathLike[str], *, batch_size: int | None = None
    ) -> None:
        if isinstance(plan_or_path, Plan):
            self.plan = plan_or_path
        else:
            self.plan = Plan.load(plan_or_path, batch_size=batch_size)
        self.batch_size = self.plan.batch_size

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.plan.batches():
            yield batch.tolist()
