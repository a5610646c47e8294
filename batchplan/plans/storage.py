"""Saves plans with their metadata, and reads them back.

A format with a sidecar has two files, which cannot be replaced at once: a save puts the sidecar in
place first, then the rows. If a process is killed in between, the old rows, or none, are next to
the new sidecar, and the old sidecar is at `atomic.older_path`. The digest in a sidecar says which
rows it belongs to. So loading takes the sidecar that fits, also while a save is running, and the
next save after a kill restores the old sidecar first.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from batchplan.errors import InputError, OutputError
from batchplan.extras import missing_told
from batchplan.files.atomic import is_older, older_path, output_errors, remove, write_files
from batchplan.files.inputs import PathLike
from batchplan.files.locks import folders_locked
from batchplan.files.reading import open_regular
from batchplan.files.remote import no_url
from batchplan.files.sidecar import opened_with_sidecars, sidecar_path
from batchplan.plans.formats import format_of, txt
from batchplan.plans.formats.contents import (
    Contents,
    Document,
    PlanFormat,
    document_bytes,
    parse_document,
)
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.output import STDOUT, check_output
from batchplan.plans.steps import check_steps
from batchplan.plans.validation import (
    check_batch_size,
    check_batches_distinct,
    check_offsets,
    check_partition,
    check_range,
    integers_of,
    is_partition,
    regular_offsets,
)
from batchplan.typing import Int64Array

_NO_SIZE = "leave it out, or choose the plan for it"
_OTHER_DATA = "give the data it was made for, or plan again"


Parts = tuple[Int64Array, Int64Array, PlanMetadata]
"""The rows, the batch offsets and the metadata of a plan."""


class ForeignMetadataError(InputError):
    """The metadata belong to other rows or batches."""


@missing_told()
def write_plan(
    plan: Parts, path: PathLike, *, force: bool, ids: Any, inputs: Sequence[PathLike]
) -> None:
    """Write a plan; arguments and errors as `Plan.save`."""
    rows, offsets, metadata = plan
    if os.fspath(path) == STDOUT:
        return _write_stdout(Contents(rows))
    check_output(path, force=force, inputs=inputs)
    path = Path(path)
    form = format_of(path)
    document = metadata.to_dict()
    regular = regular_offsets(len(rows), metadata.batch_size)
    if not form.holds_batches and not np.array_equal(offsets, regular):
        document["batch_offsets"] = offsets.tolist()
    document["digest"] = batches_digest(rows, offsets)
    contents = Contents(rows, offsets, document, ids)
    if not form.sidecar:
        return write_files({path: lambda stream: form.write(stream, contents)})
    _finish_killed_save(path, form)
    sidecar = document_bytes(document, indent=2) + b"\n"
    write_files({sidecar_path(path): sidecar, path: lambda stream: form.write(stream, contents)})


def _write_stdout(contents: Contents) -> None:
    """Write a row number per line to standard output, without metadata.

    Raises:
        BrokenPipeError: the reader stopped, as ``head`` does; not a failure.
        OutputError: writing failed for another reason.
    """
    try:
        txt.write(sys.stdout.buffer, contents)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: could not be written ({error.strerror})") from error


@missing_told()
def read_plan(path: PathLike, *, batch_size: int | None, num_rows: int | None) -> Parts:
    """Read and check a plan; arguments and errors as `Plan.load`."""
    path = no_url(path)
    contents, sidecars = _read(path, format_of(path))
    foreign: ForeignMetadataError | None = None
    for home, text in sidecars.items():
        try:
            return _parts(_described(contents, home, text), path, home, batch_size, num_rows)
        except ForeignMetadataError as error:
            foreign = foreign or error
    if foreign:
        raise foreign
    return _parts(contents, path, path, batch_size, num_rows)


def _read(path: Path, form: PlanFormat) -> tuple[Contents, dict[Path, bytes]]:
    """Return the contents of a plan, and its sidecars as `opened_with_sidecars` returns them."""
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {problem}; give the path of a plan")
    try:
        if form.sidecar:
            with opened_with_sidecars(path) as (stream, sidecars):
                return form.read(stream, path), sidecars
        with open_regular(path, "a plan") as stream:
            return form.read(stream, path), {}
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror or error})") from error


def _parts(
    contents: Contents, path: Path, home: Path, batch_size: int | None, num_rows: int | None
) -> Parts:
    """Check the contents of a plan; ``home`` is the file of the metadata, if there are any."""
    if contents.document is None:
        return _without_metadata(contents, str(path), batch_size, num_rows)
    rows, offsets, metadata = _with_metadata(contents, contents.document, str(home))
    _require("batch size", batch_size, metadata.batch_size, str(home), _NO_SIZE)
    _require("number of rows", num_rows, metadata.num_rows, str(home), _OTHER_DATA)
    check_parts(rows, offsets, metadata, str(path))
    return rows, offsets, metadata


def batches_digest(rows: Int64Array, offsets: Int64Array) -> str:
    """Return SHA-256 over rows, then batch offsets, as little-endian int64."""
    digest = hashlib.sha256()
    for numbers in (rows, offsets):
        digest.update(np.ascontiguousarray(numbers, dtype="<i8").data)
    return f"sha256:{digest.hexdigest()}"


def _described(contents: Contents, sidecar: Path, text: bytes) -> Contents:
    """Return the contents of a plan with the metadata in the text of a sidecar. If an older sidecar
    is empty, the plan had no metadata."""
    if not text and is_older(sidecar):
        return contents
    return replace(contents, document=parse_document(text, str(sidecar)))


def _finish_killed_save(path: Path, form: PlanFormat) -> None:
    """After a save that was killed between its two files, restore the sidecar of the rows."""
    sidecar = sidecar_path(path)
    older = older_path(sidecar)
    if not older.exists():
        return
    with folders_locked([older.parent]) as alone, output_errors(sidecar):
        if not alone or not older.exists():  # a save is running, or has just ended
            return
        if not path.exists() or _fitting(path, form) == older:
            if older.stat().st_size:
                os.replace(older, sidecar)
            else:
                sidecar.unlink(missing_ok=True)
        remove(older)


def _fitting(path: Path, form: PlanFormat) -> Path | None:
    """The sidecar of the rows of a plan; None if there is none, or if a file cannot be read, since
    the next save replaces both."""
    with suppress(InputError):
        contents, sidecars = _read(path, form)
        for home, text in sidecars.items():
            with suppress(ForeignMetadataError):
                document = _described(contents, home, text).document
                if document is None or _with_metadata(contents, document, ""):
                    return home
    return None


def _with_metadata(contents: Contents, document: Document, where: str) -> Parts:
    metadata = PlanMetadata.from_dict(document, where=where)
    offsets = contents.batch_offsets
    if offsets is None:
        offsets = regular_offsets(len(contents.rows), metadata.batch_size)
        if "batch_offsets" in document:
            listed = integers_of(document["batch_offsets"])
            if listed is None:
                raise InputError(
                    f"{where}: batch_offsets: expected a list of int64 integers; write the plan "
                    "again"
                )
            offsets = listed
    expected = document.get("digest")
    if not isinstance(expected, str):
        raise InputError(f"{where}: metadata without digest; write the plan again")
    if batches_digest(contents.rows, offsets) != expected:
        raise ForeignMetadataError(
            f"{where}: the metadata belong to other rows or batches (the digest differs): a save "
            "was cut short or a file was edited; plan again, or delete the metadata to load the "
            "rows alone"
        )
    return contents.rows, offsets, metadata


def _without_metadata(
    contents: Contents, where: str, batch_size: int | None, num_rows: int | None
) -> Parts:
    """Return the parts of a plan without metadata; missing facts are arguments, or derived."""
    rows, offsets = contents.rows, contents.batch_offsets
    if offsets is None:
        if batch_size is None:
            raise InputError(
                f"{where}: has no metadata next to it, so the batch size is unknown; pass "
                "--batch-size (batch_size in Python)"
            )
        check_batch_size(batch_size, len(rows), where)
        offsets = regular_offsets(len(rows), batch_size)
    check_offsets(offsets, len(rows), where)
    largest = int(np.diff(offsets).max())
    _require("batch size", batch_size, largest, where, _NO_SIZE)
    num_rows = int(rows.max()) + 1 if num_rows is None else num_rows
    check_range(rows, num_rows, where)
    if not (whole := is_partition(rows, num_rows)):
        check_batches_distinct(rows, offsets, where)
    check_batch_size(largest, num_rows, where)
    metadata = PlanMetadata(batch_size=largest, num_rows=num_rows, partitions_rows=whole)
    return rows, offsets, metadata


def _require(name: str, expected: int | None, got: int, where: str, mend: str) -> None:
    if expected is not None and expected != got:
        raise InputError(f"{where}: {name} of the plan is {got}, expected {expected}; {mend}")


def check_parts(rows: Int64Array, offsets: Int64Array, metadata: PlanMetadata, where: str) -> None:
    """Require that the rows and batches are valid and agree with the metadata.

    Raises:
        InputError: ``where`` begins the message.
    """
    check_offsets(offsets, len(rows), where)
    check_range(rows, metadata.num_rows, where)
    largest = int(np.diff(offsets).max())
    if largest > metadata.batch_size:
        raise InputError(
            f"{where}: got a batch of {largest} rows, expected at most {metadata.batch_size}"
        )
    check_steps(offsets, metadata.world_size, metadata.scope, where)
    if metadata.partitions_rows:
        check_partition(rows, metadata.num_rows, where)
    else:
        check_batches_distinct(rows, offsets, where)
