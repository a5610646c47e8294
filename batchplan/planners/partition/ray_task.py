"""The work of a Ray worker: open the files, plan a mega-batch, and return its batches."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from batchplan.data import Embeddings
from batchplan.data.load import open_again
from batchplan.data.matrix import Side
from batchplan.data.origin import Origin
from batchplan.errors import BatchplanError, ResourceError
from batchplan.planners.partition.mega_batch import MegaBatch, Planned, plan_mega_batch
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.metadata import library_versions
from batchplan.runtime import Runtime


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that a worker needs to plan a mega-batch: a few bytes a row, and no vectors.

    Attributes:
        origin: the files of the data.
        reference: the files of the guard's reference, if it has one.
        mega_batch, options, runtime: the arguments of `plan_mega_batch`.
        threads: number of CPUs of the task.
    """

    origin: Origin
    reference: Origin | None
    mega_batch: MegaBatch
    options: PartitionOptions
    runtime: Runtime
    threads: int


def work(task: bytes, versions: Mapping[str, str], node: str) -> Planned:
    """Plan the mega-batch of a pickled `Task`.

    The task is unpickled only if all libraries have the versions of the process that sent it.

    Raises:
        InputError: a file is missing here or differs; or as `plan_mega_batch`.
        ResourceError: other versions, not enough memory, or no such device.
    """
    here = library_versions()
    if others := sorted(
        f"{name} {here.get(name, 'missing')} instead of {versions.get(name, 'none')}"
        for name in here.keys() | versions.keys()
        if here.get(name) != versions.get(name)
    ):
        raise ResourceError(
            f"node {node}: got {', '.join(others)}, so its plans would be others; install the same "
            "versions on all nodes"
        )
    try:
        return _work(pickle.loads(task))
    except BatchplanError as error:
        raise type(error)(f"node {node}: {error}") from error


def _work(task: Task) -> Planned:
    torch.set_num_threads(task.threads)
    rows, reference = task.mega_batch.rows, None
    embeddings = Embeddings.gathered(_sides(task.origin), rows)
    if task.reference is not None:
        reference = Embeddings.gathered(_sides(task.reference), rows)
    return plan_mega_batch(embeddings, task.mega_batch, task.options, task.runtime, reference)


@lru_cache(maxsize=2)  # the data and a reference
def _sides(origin: Origin) -> list[Side]:
    """The matrices of some files, which are opened once for all tasks of this process."""
    return open_again(origin)
