"""A plan that stays in its file, for training."""

from __future__ import annotations

import os
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.inputs import PathLike
from batchplan.plans.plan import Plan
from batchplan.plans.storage import batches_digest, read_plan
from batchplan.typing import Int64Array


class StoredPlan(Plan):
    """The plan in a file, which processes pass to each other by its path.

    The row numbers of ``.npy`` are mapped: they take no memory but the system's cache of files,
    which all processes share. Saving another plan at the path leaves those that have it open with
    theirs, as every save replaces the file. A program that writes into the file itself, as ``cp``
    does, changes the batches of a training that runs.

    Args:
        path: as `Plan.load` takes it.
        batch_size: as `Plan.load` takes it.

    Attributes:
        rows: as those of `Plan`. All are read when this is first used; `entries` reads a few.

    Raises:
        InputError: as `Plan.load`. In a process that a pickled plan was sent to: the file is gone,
            or has another plan now.
    """

    def __init__(self, path: PathLike, *, batch_size: int | None = None) -> None:
        stored, offsets, metadata = read_plan(
            path, batch_size=batch_size, num_rows=None, mapped=True
        )
        offsets.flags.writeable = False
        self.__dict__.update(batch_offsets=offsets, metadata=metadata)
        self._stored: NDArray[np.int32 | np.int64] = stored.view(np.ndarray)
        self._stored.flags.writeable = False
        self._source = os.path.abspath(path), batch_size

    @cached_property
    def rows(self) -> Int64Array:
        rows = self._stored.astype(np.int64, copy=False)
        rows.flags.writeable = False
        return rows

    @cached_property
    def digest(self) -> str:
        return batches_digest(self._stored, self.batch_offsets)

    def entries(self, start: int, stop: int) -> NDArray[np.int32 | np.int64]:
        return self._stored[start:stop]

    def __deepcopy__(self, memo: object) -> StoredPlan:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _opened_again, (*self._source, self.digest)


def _opened_again(path: str, batch_size: int | None, digest: str) -> StoredPlan:
    plan = StoredPlan(path, batch_size=batch_size)
    if plan.digest != digest:
        raise InputError(
            f"{path}: holds another plan (digest {plan.digest}) than in the process that sent it "
            f"here ({digest}); it was replaced meanwhile: use a new name for each plan"
        )
    return plan
