"""JSON lines: the row numbers of a batch per line."""

import json
import re
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.errors import BatchplanError, InputError
from batchplan.files.reading import open_regular
from batchplan.plans.formats.contents import Document, PlanFormat, Read
from batchplan.plans.validation import integers_of
from batchplan.typing import Int64Array


def write(stream: BinaryIO, plan: Any, document: Document, ids: Any) -> None:
    for batch in plan.batches():
        stream.write(json.dumps(batch.tolist()).encode() + b"\n")


def read(stream: BufferedReader, path: Path) -> Read:
    batches = [_parse(line, f"{path}, line {n}") for n, line in enumerate(stream, 1)]
    if not batches:
        raise InputError(f"{path}: is empty, expected one batch per line")
    return np.concatenate(batches), np.cumsum([0, *map(len, batches)]), None


def _parse(line: bytes, where: str) -> Int64Array:
    try:
        batch = integers_of(json.loads(line))
    except (ValueError, RecursionError):
        batch = None
    if batch is not None:
        return batch
    raise InputError(
        f"{where}: got {line.strip()[:40]!r}, expected a JSON list of row numbers, such as [3, 1]; "
        "correct or remove the line"
    )


def _has_batches(path: Path) -> bool:
    """Return whether the first line is a list of integers, as far as it is read."""
    try:
        with open_regular(path, "a plan") as stream:
            line = stream.read(1 << 12).partition(b"\n")[0]
    except BatchplanError:
        return False
    return re.fullmatch(rb"\s*\[[-\d\s,]+\]?\s*", line) is not None


FORMAT = PlanFormat(write, read, sidecar=True, is_plan=_has_batches)
