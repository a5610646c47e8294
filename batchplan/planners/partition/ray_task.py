"""What a worker of a Ray cluster does: open the files, plan a mega-batch, and say where and how."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import torch

from batchplan.data import Embeddings
from batchplan.data.load import open_again
from batchplan.data.matrix import Side
from batchplan.data.origin import Origin
from batchplan.errors import BatchplanError, ResourceError
from batchplan.graph.cutters import Cutters
from batchplan.planners.partition.mega_batch import MegaBatch, Planned, plan_mega_batch
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.metadata import library_versions
from batchplan.runtime import Runtime, Stopwatch


@dataclass(frozen=True, eq=False)
class Task:
    """A mega-batch, and all that a worker needs to plan it: a few bytes a row, and no vectors.

    Attributes:
        origin: the files.
        reference: those of the guard's reference, if it has one.
        mega_batch, options: as `plan_mega_batch` takes them.
        seed, device, memory: of the `Runtime`.
        threads: as many as the CPUs that the task has.
    """

    origin: Origin
    reference: Origin | None
    mega_batch: MegaBatch
    options: PartitionOptions
    seed: int
    device: str
    memory: int | None
    threads: int


class Done(NamedTuple):
    """A mega-batch that a worker has planned.

    Attributes:
        planned: its batches.
        node: address of the worker's machine.
        seconds: of each stage.
    """

    planned: Planned
    node: str
    seconds: dict[str, float]


def work(task: bytes, versions: Mapping[str, str], node: str) -> Done:
    """Plan the mega-batch of a pickled `Task`, which is opened if the versions of all libraries are
    those of the process that plans.

    Raises:
        InputError: a file is missing here, or another one; or as `plan_mega_batch`.
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
        return _work(pickle.loads(task), node)
    except BatchplanError as error:
        raise type(error)(f"node {node}: {error}") from error


def _work(task: Task, node: str) -> Done:
    torch.set_num_threads(task.threads)
    stages = Stopwatch()
    runtime = Runtime(task.device, task.memory, task.seed, stages)
    with runtime.stage("read"):
        embeddings = _rows(task.origin, task.mega_batch)
        reference = None if task.reference is None else _rows(task.reference, task.mega_batch)
    planned = plan_mega_batch(
        embeddings, task.mega_batch, task.options, runtime, _cutters(), reference
    )
    return Done(planned, node, stages.seconds)


def _rows(origin: Origin, mega_batch: MegaBatch) -> Embeddings:
    return Embeddings.gathered(_sides(origin), mega_batch.rows)


@lru_cache(maxsize=2)  # of the data and of a reference
def _sides(origin: Origin) -> list[Side]:
    """Opened once for all tasks of this process."""
    return open_again(origin)


@cache
def _cutters() -> Cutters:
    """They end with this process."""
    return Cutters()
