"""Saves plans with their metadata, and reads them back.

A format with a sidecar has two files, which cannot be replaced at once: a save renames the new
sidecar, then the new rows. The digest in a sidecar says which rows it belongs to. If a load finds
another digest, a save may be between its two renames, so the load reads both files again.
"""

import hashlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from batchplan.errors import InputError, OutputError
from batchplan.extras import missing_told
from batchplan.files.atomic import write_files
from batchplan.files.inputs import PathLike
from batchplan.files.reading import open_regular
from batchplan.files.remote import no_url
from batchplan.files.sidecar import read_sidecar, sidecar_path
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
_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.0)  # seconds; a save renames its two files at once

Parts = tuple[Int64Array, Int64Array, PlanMetadata]
"""The rows, the batch offsets and the metadata of a plan."""


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
    form = format_of(path)
    home = str(sidecar_path(path) if form.sidecar else path)
    for pause in _PAUSES if form.sidecar else (0.0,):
        contents = _read(path, form)
        if contents.document is None:
            return _without_metadata(contents, str(path), batch_size, num_rows)
        metadata, offsets, digest = _described(contents, contents.document, home)
        if batches_digest(contents.rows, offsets) == digest:
            break
        time.sleep(pause)
    else:
        raise InputError(
            f"{home}: the metadata belong to other rows or batches (the digest differs): a save "
            "was cut short or a file was edited; plan again, or delete the metadata to load the "
            "rows alone"
        )
    _require("batch size", batch_size, metadata.batch_size, home, _NO_SIZE)
    _require("number of rows", num_rows, metadata.num_rows, home, _OTHER_DATA)
    check_parts(contents.rows, offsets, metadata, str(path))
    return contents.rows, offsets, metadata


def _read(path: Path, form: PlanFormat) -> Contents:
    """Return the contents of a plan, with the metadata of its sidecar."""
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {problem}; give the path of a plan")
    try:
        with open_regular(path, "a plan") as stream:
            # Read after the rows are opened: a save renames the sidecar first, so that of new rows
            # is there.
            text = read_sidecar(path, os.fstat(stream.fileno()).st_size) if form.sidecar else None
            contents = form.read(stream, path)
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror or error})") from error
    if text is None:
        return contents
    return replace(contents, document=parse_document(text, str(sidecar_path(path))))


def batches_digest(rows: Int64Array, offsets: Int64Array) -> str:
    """Return SHA-256 over rows, then batch offsets, as little-endian int64."""
    digest = hashlib.sha256()
    for numbers in (rows, offsets):
        digest.update(np.ascontiguousarray(numbers, dtype="<i8").data)
    return f"sha256:{digest.hexdigest()}"


def _described(
    contents: Contents, document: Document, where: str
) -> tuple[PlanMetadata, Int64Array, str]:
    """Return the metadata, the batch offsets and the digest of a plan by its metadata."""
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
    digest = document.get("digest")
    if not isinstance(digest, str):
        raise InputError(f"{where}: metadata without digest; write the plan again")
    return metadata, offsets, digest


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
