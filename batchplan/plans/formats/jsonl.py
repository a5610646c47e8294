"""JSON lines: the row numbers of one batch a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.files.reading import open_regular
from batchplan.plans.formats.contents import Contents, Format
from batchplan.plans.validation import Int64Array


def write(stream: BinaryIO, contents: Contents) -> None:
    for batch in contents.batches():
        stream.write(json.dumps(batch.tolist()).encode() + b"\n")


def read(path: Path) -> Contents:
    with open_regular(path, "a plan") as stream:
        batches = [_parse(line, f"{path}, line {n}") for n, line in enumerate(stream, 1)]
    if not batches:
        raise InputError(f"{path}: is empty, expected one batch a line")
    return Contents.of_batches(batches)


def _parse(line: bytes, where: str) -> Int64Array:
    try:
        batch: Any = json.loads(line)
        # The types are compared because NumPy would take true and 1.5 for integers.
        if isinstance(batch, list) and set(map(type, batch)) == {int}:
            return np.array(batch, dtype=np.int64)
    except (ValueError, OverflowError, RecursionError):
        pass
    raise InputError(
        f"{where}: got {line.strip()[:40]!r}, expected a JSON list of row numbers, such as [3, 1]; "
        "mend or remove the line"
    )


FORMAT = Format(write, read, sidecar=True, holds_batches=True)
