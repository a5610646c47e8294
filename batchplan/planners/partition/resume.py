"""A folder that keeps the mega-batches that are done, so that a plan survives an interruption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.data import Data
from batchplan.errors import InputError
from batchplan.files.atomic import is_staged, write_files
from batchplan.files.documents import parse_json
from batchplan.files.reading import readable
from batchplan.files.remote import no_url
from batchplan.options import recorded
from batchplan.planners.partition.mega_batch import MegaBatch, Outcome, Planned
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.metadata import library_versions
from batchplan.runtime import Runtime
from batchplan.text import public

_RUN = "run.json"


class Kept:
    """Mega-batches in files of a folder, each written as a whole.

    The folder says which run it belongs to, and each file to which rows, so that what another run
    left is refused.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        """Open the folder of a run, or make it.

        Raises:
            InputError: it holds other files, or what another run left.
            OutputError: it cannot be made.
        """
        self._folder = folder
        text = json.dumps(run, indent=2)
        with readable(folder):
            entries = list(folder.iterdir()) if folder.exists() else []
        # A run that was killed while it wrote its first file leaves a hidden one, to be removed.
        there = sorted(path.name for path in entries if not is_staged(path))
        if _RUN in there:
            self._require(parse_json(text.encode()))
        elif there:
            raise InputError(
                f"resume {folder}: holds {there[0]}, expected an empty folder or what a run left "
                "there; name another folder"
            )
        else:
            write_files({folder / _RUN: f"{text}\n".encode()}, folder=folder)

    @classmethod
    def of(
        cls,
        folder: str,
        embeddings: Data,
        options: PartitionOptions,
        stored: Mapping[str, Any],
        runtime: Runtime,
    ) -> Kept:
        """The folder of a run with this data, these options, of which some are ``stored``
        otherwise, and this seed; raises as `Kept`."""
        run = {"data": embeddings.fingerprint, "seed": runtime.seed, **recorded(options), **stored}
        return cls(no_url(folder), {**run, **library_versions()})

    def read(self, number: int, mega_batch: MegaBatch) -> Planned | None:
        """A mega-batch that is done; None if it is not.

        Raises:
            InputError: the file is damaged, or of other rows.
        """
        path = self._path(number)
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

    def write(self, number: int, mega_batch: MegaBatch, planned: Planned) -> None:
        """Keep a mega-batch; raises OutputError."""
        passes, gain, broken, kind = planned.outcome
        numbers = np.array([passes, -1 if broken is None else broken])
        arrays = (
            np.frombuffer(_digest(mega_batch), np.uint8),
            numbers,
            np.array(gain),
            np.array(kind),
            planned.order,
        )

        def write(stream: BinaryIO) -> None:
            for array in arrays:
                np.lib.format.write_array(stream, array, allow_pickle=False)

        write_files({self._path(number): write})

    def _path(self, number: int) -> Path:
        return self._folder / f"mega-batch-{number:06d}.bin"

    def _require(self, run: Mapping[str, Any]) -> None:
        path = self._folder / _RUN
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
                    f"resume {self._folder}: keeps a run with {label} {before!r:.80}, got "
                    f"{run.get(name)!r:.80}; name another folder, or delete this one"
                )


def _digest(mega_batch: MegaBatch) -> bytes:
    """Distinguishes a mega-batch from those of other rows, groups, sources or plans to start
    from."""
    hashed = blake2b(mega_batch.tail.encode(), digest_size=16)
    for array in (
        mega_batch.rows, mega_batch.sizes, mega_batch.groups, mega_batch.kinds, mega_batch.start
    ):  # fmt: skip
        hashed.update(b"-" if array is None else np.ascontiguousarray(array, "<i8").data)
    return hashed.digest()
