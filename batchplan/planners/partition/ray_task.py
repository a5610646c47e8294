"""The work of a Ray worker: open the files, plan a mega-batch, and return its batches."""

import pickle
from collections.abc import Mapping
from functools import lru_cache

import torch

from batchplan.data import Embeddings
from batchplan.data.load import open_again
from batchplan.data.matrix import Side
from batchplan.data.origin import Origin
from batchplan.errors import BatchplanError, ResourceError
from batchplan.planners.partition.mega_batch import MegaBatch, Planned, prepare
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.metadata import library_versions
from batchplan.runtime import Runtime


def work(task: bytes, versions: Mapping[str, str]) -> Planned:
    """Plan the mega-batch of a pickled tuple of the arguments of `_work`.

    It is unpickled only if all libraries have the versions of the process that sent it.

    Raises:
        InputError: a file is missing here or differs; or as `prepare`.
        ResourceError: other versions, not enough memory, or no such device.
    """
    import ray

    here, node = library_versions(), ray.util.get_node_ip_address()
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
        return _work(*pickle.loads(task))
    except BatchplanError as error:
        raise type(error)(f"node {node}: {error}") from error


def _work(
    origin: Origin, reference_origin: Origin | None, mega_batch: MegaBatch,
    options: PartitionOptions, runtime: Runtime, threads: int,
) -> Planned:  # fmt: skip
    torch.set_num_threads(threads)
    rows, reference = mega_batch.rows, None
    embeddings = Embeddings.gathered(_sides(origin), rows)
    if reference_origin is not None:
        reference = Embeddings.gathered(_sides(reference_origin), rows)
    prepared = prepare(embeddings, mega_batch, options, runtime, reference)
    return prepared.planned(runtime)


@lru_cache(maxsize=2)  # the data and a reference
def _sides(origin: Origin) -> list[Side]:
    """The matrices of some files, which are opened once for all tasks of this process."""
    return open_again(origin)
