"""What the steps of a training should see: read from the rows and offsets of saved plans, without
the code that is tested."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain, pairwise
from unittest import mock

import numpy as np

from batchplan import Plan
from batchplan.training.vectors import Vectors


@contextmanager
def last_vectors():
    """A list that gets the vectors, by side, which plans were made from when they end."""
    kept, release = [], Vectors.release

    def keep(vectors):
        if hasattr(vectors, "store"):
            kept[:] = vectors.store.sides or kept
        release(vectors)

    with mock.patch.object(Vectors, "release", keep):
        yield kept


def run_of(folder):
    """The folder of plans; of a trainer, that of its only run."""
    runs = [path for path in folder.iterdir() if path.is_dir() and path.name[0] == "2"]
    assert len(runs) <= 1
    return runs[0] if runs else folder


def epoch_of(path, devices):
    """The rows of each step of a plan: ``[rank][step]`` is a list of row numbers."""
    plan = Plan.load(path)
    rows = plan.rows.tolist()
    offsets = plan.batch_offsets.tolist()
    batches = [rows[start:stop] for start, stop in pairwise(offsets)]
    if plan.metadata.scope == "device":
        return [batches[rank::devices] for rank in range(devices)]
    shared = [[part.tolist() for part in np.array_split(batch, devices)] for batch in batches]
    return [[parts[rank] for parts in shared] for rank in range(devices)]


def plan_of(folder, epoch):
    """The file of a plan; with the planned rest, if only the first batches of it were random."""
    rest = folder / f"rest-{epoch:04d}.npz"
    return rest if rest.exists() else folder / f"plan-{epoch:04d}.npz"


def epochs_of(folder, devices, count):
    """The steps of all epochs of a run, one after the other: ``[rank][step]``."""
    epochs = [epoch_of(plan_of(run_of(folder), epoch), devices) for epoch in range(count)]
    return [list(chain(*(epoch[rank] for epoch in epochs))) for rank in range(devices)]
