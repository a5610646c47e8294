"""Text: JSON lines with one batch a line, and plain text with one row a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.files.reading import open_regular
from batchplan.plans.formats.contents import Contents, Document
from batchplan.plans.validation import Int64Array

if TYPE_CHECKING:
    from batchplan.plans.plan import Plan

_BLOCK = 1 << 18  # rows formatted at once
_READ_BYTES = 1 << 22  # of lines parsed at once


def write_txt(stream: BinaryIO, plan: Plan, document: Document, ids: object) -> None:
    for start in range(0, len(plan.rows), _BLOCK):
        numbers = plan.rows[start : start + _BLOCK].tolist()
        stream.write(("\n".join(map(str, numbers)) + "\n").encode())


def read_txt(path: Path) -> Contents:
    parts: list[Int64Array] = []
    done = 0
    with open_regular(path, "a plan") as stream:
        while lines := stream.readlines(_READ_BYTES):
            parts.append(_parse_lines(lines, done, path))
            done += len(lines)
    if not parts:
        raise InputError(f"{path}: is empty, expected one row number a line")
    return Contents(np.concatenate(parts))


def write_jsonl(stream: BinaryIO, plan: Plan, document: Document, ids: object) -> None:
    for batch in plan.batches():
        stream.write(json.dumps(batch.tolist()).encode() + b"\n")


def read_jsonl(path: Path) -> Contents:
    with open_regular(path, "a plan") as stream:
        batches = [_parse_batch(line, f"{path}, line {n}") for n, line in enumerate(stream, 1)]
    if not batches:
        raise InputError(f"{path}: is empty, expected one batch a line")
    offsets = np.cumsum([0, *map(len, batches)], dtype=np.int64)
    return Contents(np.concatenate(batches), offsets)


def _parse_lines(lines: list[bytes], done: int, path: Path) -> Int64Array:
    """The numbers of a block of lines; ``done`` lines came before it."""
    try:
        if b"_" in b"".join(lines):  # int() takes 1_000
            raise ValueError
        return np.fromiter(map(int, lines), dtype=np.int64, count=len(lines))
    except (ValueError, OverflowError):
        number, line = next((n, line) for n, line in enumerate(lines, 1) if not _is_row(line))
        raise InputError(
            f"{path}, line {done + number}: got {line.strip()[:40]!r}, expected one row number a "
            "line; mend or remove the line"
        ) from None


def _is_row(line: bytes) -> bool:
    try:
        return b"_" not in line and abs(int(line)) < 1 << 63
    except ValueError:
        return False


def _parse_batch(line: bytes, where: str) -> Int64Array:
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
