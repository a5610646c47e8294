"""Reads the file of a plan and its sidecar, and writes plans to standard output."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from batchplan.errors import InputError, OutputError
from batchplan.files.reading import open_regular
from batchplan.files.sidecar import read_sidecar, sidecar_path
from batchplan.plans.formats import txt
from batchplan.plans.formats.contents import Document, PlanFormat, Read, parse_document
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.validation import check_range, integers_of, is_partition, regular_offsets
from batchplan.typing import Int64Array


def write_stdout(plan: Any) -> None:
    """Write a row number per line to standard output, without metadata.

    Raises:
        BrokenPipeError: the reader stopped, as ``head`` does; not a failure.
        OutputError: writing failed for another reason.
    """
    try:
        txt.write(sys.stdout.buffer, plan, {}, None)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: could not be written ({error.strerror})") from error


def read_files(path: Path, form: PlanFormat) -> Read:
    """Return the contents of a plan, with the metadata of its sidecar.

    Raises:
        InputError: a file is missing or broken.
    """
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {problem}; give the path of a plan")
    try:
        with open_regular(path, "a plan") as stream:
            # Read after the rows are opened: a save renames the sidecar first, so the sidecar
            # of new rows is there.
            text = read_sidecar(path, os.fstat(stream.fileno()).st_size) if form.sidecar else None
            rows, offsets, document = form.read(stream, path)
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror or error})") from error
    if text is not None:
        document = parse_document(text, str(sidecar_path(path)))
    return rows, offsets, document


def stored_offsets(
    document: Document | None, num_entries: int, batch_size: int, where: str
) -> Int64Array:
    """Return the batch offsets of the metadata; without them, the offsets of full batches.

    Raises:
        InputError: not a list of integers.
    """
    if document is None or "batch_offsets" not in document:
        return regular_offsets(num_entries, batch_size)
    offsets = integers_of(document["batch_offsets"])
    if offsets is None:
        raise InputError(
            f"{where}: batch_offsets: expected a list of int64 integers; write the plan again"
        )
    return offsets


def derived_metadata(
    rows: Int64Array,
    offsets: Int64Array | None,
    batch_size: int | None,
    num_rows: int | None,
    where: str,
) -> PlanMetadata:
    """Return the metadata of a plan without any; missing facts are arguments, or derived.

    Raises:
        InputError: the batch size is unknown or out of range, or a row is.
    """
    if offsets is not None:
        batch_size = int(np.diff(offsets).max())
    elif batch_size is None:
        raise InputError(
            f"{where}: has no metadata next to it, so the batch size is unknown; pass --batch-size "
            "(batch_size in Python)"
        )
    num_rows = int(rows.max()) + 1 if num_rows is None else num_rows
    check_range(rows, num_rows, where)
    whole = is_partition(rows, num_rows)
    try:
        return PlanMetadata(batch_size=batch_size, num_rows=num_rows, partitions_rows=whole)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
