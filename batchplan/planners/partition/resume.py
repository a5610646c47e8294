"""A folder of finished mega-batches, so that an interrupted run can go on.

``run.json`` identifies the run, and each file of a mega-batch its rows. So files of another run are
refused. Each file is written as a whole.
"""

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.files.atomic import is_staged, write_files
from batchplan.files.documents import parse_json
from batchplan.files.reading import readable
from batchplan.files.remote import no_url
from batchplan.options import recorded
from batchplan.planners.partition.mega_batch import MegaBatch, Outcome, Planned
from batchplan.planners.partition.problem import Problem
from batchplan.plans.metadata import library_versions
from batchplan.runtime import Runtime
from batchplan.text import public

_RUN = "run.json"


def open_folder(problem: Problem, runtime: Runtime) -> Path:
    """Return the folder of ``--resume``, which is made if it does not exist.

    Raises:
        InputError: it has other files, or those of a run with other data, options or versions.
        OutputError: it cannot be made.
    """
    folder = no_url(str(problem.options.resume))
    run = {"data": problem.embeddings.fingerprint, "seed": runtime.seed}
    run |= {**recorded(problem.options), **problem.stored, **library_versions()}
    text = json.dumps(run, indent=2)
    with readable(folder):
        entries = list(folder.iterdir()) if folder.exists() else []
    # A run that was killed while it wrote its first file leaves a hidden file, to be removed.
    there = sorted(path.name for path in entries if not is_staged(path))
    if _RUN in there:
        _require_same(folder, parse_json(text.encode()))
    elif there:
        raise InputError(
            f"resume {folder}: holds {there[0]}, expected an empty folder or what a run left "
            "there; name another folder"
        )
    else:
        write_files({folder / _RUN: f"{text}\n".encode()}, folder=folder)
    return folder


def _require_same(folder: Path, run: dict[str, Any]) -> None:
    path = folder / _RUN
    try:
        with readable(path):
            kept = parse_json(path.read_bytes())
    except ValueError as error:
        raise InputError(f"resume {path}: is not JSON ({error}); delete the folder") from error
    kept = kept if isinstance(kept, dict) else {}
    for name in [*run, *kept]:
        if kept.get(name) != run.get(name):
            label, before = name.replace("_", " "), public(kept.get(name))
            raise InputError(
                f"resume {folder}: keeps a run with {label} {before!r:.80}, got "
                f"{run.get(name)!r:.80}; name another folder, or delete this one"
            )


def read_planned(folder: Path, number: int, mega_batch: MegaBatch) -> Planned | None:
    """Return the batches of a mega-batch that was finished, else None.

    Raises:
        InputError: the file is damaged, or of other rows.
    """
    path = _path(folder, number)
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            inputs, numbers, gain, kind, order = (
                np.lib.format.read_array(file, allow_pickle=False) for _ in range(5)
            )
        same = inputs.tobytes() == _digest(mega_batch)
        passes, broken = numbers.tolist()
        outcome = Outcome(passes, float(gain), None if broken < 0 else broken, str(kind))
        held = np.bincount(order, minlength=len(mega_batch.rows))
        whole = len(order) == mega_batch.batch_sizes.sum() and len(held) == len(mega_batch.rows)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"resume {path}: cannot be read ({error}); the file is damaged: delete it"
        ) from error
    if not (same and whole):
        raise InputError(
            f"resume {path}: holds other rows than this run; groups or sources may have "
            "changed: name another folder"
        )
    return Planned(order, outcome)


def write_planned(folder: Path, number: int, mega_batch: MegaBatch, planned: Planned) -> None:
    """Write the batches of a mega-batch for `read_planned`; raises OutputError."""
    passes, gain, broken, kind = planned.outcome
    numbers = [passes, -1 if broken is None else broken]
    digest = np.frombuffer(_digest(mega_batch), np.uint8)

    def write(stream: BinaryIO) -> None:
        for array in (digest, numbers, gain, kind, planned.order):
            np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)

    write_files({_path(folder, number): write})


def _path(folder: Path, number: int) -> Path:
    return folder / f"mega-batch-{number:06d}.bin"


def _digest(mega_batch: MegaBatch) -> bytes:
    """A digest of the rows, groups and sources."""
    hashed = blake2b(mega_batch.tail.encode(), digest_size=16)
    known = mega_batch.rows, mega_batch.sizes, *mega_batch.groups
    for array in (*known, mega_batch.kinds):
        hashed.update(b"-" if array is None else np.ascontiguousarray(array, "<i8").data)
    return hashed.digest()
