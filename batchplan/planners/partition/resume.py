"""A folder of finished mega-batches, so that an interrupted run can go on.

The name of a file is a digest of all that decides its content. So runs with other data, options or
versions can share a folder, and do not read each other's files. Each file is written as a whole.
"""

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.files.remote import no_url
from batchplan.options import recorded
from batchplan.planners.partition.mega_batch import MegaBatch, MegaBatchOutcome, Planned
from batchplan.planners.partition.problem import Problem
from batchplan.plans.metadata import library_versions
from batchplan.runtime import Runtime


def kept_files(problem: Problem, runtime: Runtime) -> Iterator[Path]:
    """Yield the path of each mega-batch in the folder of ``--resume``."""
    folder = no_url(str(problem.options.resume))
    run = {"data": problem.embeddings.fingerprint, "seed": runtime.seed}
    run |= {**recorded(problem.options), **problem.stored, **library_versions()}
    for mega_batch in problem.mega_batches:
        hashed = blake2b(json.dumps([run, mega_batch.tail]).encode(), digest_size=16)
        known = mega_batch.answers
        arrays = [mega_batch.rows, mega_batch.sizes, *mega_batch.groups, mega_batch.kinds]
        arrays += [] if known is None else [known.anchors, known.documents, known.listed]
        for array in arrays:
            hashed.update(b"-" if array is None else np.ascontiguousarray(array, "<i8").data)
        yield folder / f"{hashed.hexdigest()}.npz"


def read_planned(path: Path, mega_batch: MegaBatch) -> Planned | None:
    """Return the batches of a mega-batch that was finished, else None.

    Raises:
        InputError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as kept:
            passes, gain, broken, kind = (kept[name].item() for name in MegaBatchOutcome._fields)
            order = kept["order"]
        held = np.bincount(order, minlength=len(mega_batch.rows))
        if len(order) != mega_batch.batch_sizes.sum() or len(held) != len(mega_batch.rows):
            raise ValueError("other rows")
    except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
        raise InputError(
            f"resume {path}: cannot be read ({error}); the file is damaged: delete it"
        ) from error
    return Planned(order, MegaBatchOutcome(passes, gain, None if broken < 0 else broken, kind))


def write_planned(path: Path, planned: Planned) -> None:
    """Write the batches of a mega-batch for `read_planned`; raises OutputError."""
    facts = planned.outcome._asdict()
    if facts["broken"] is None:
        facts["broken"] = -1
    write_files({path: lambda stream: np.savez(stream, order=planned.order, **facts)})
