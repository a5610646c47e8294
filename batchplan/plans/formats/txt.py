"""Text: a row number per line."""

from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.plans.formats.contents import Document, PlanFormat, Read
from batchplan.typing import Int64Array

_BLOCK = 1 << 18  # rows formatted at once
_READ_BYTES = 1 << 22  # of lines parsed at once


def write(stream: BinaryIO, plan: Any, document: Document, ids: Any) -> None:
    for start in range(0, len(plan.rows), _BLOCK):
        numbers = plan.rows[start : start + _BLOCK].tolist()
        stream.write(("\n".join(map(str, numbers)) + "\n").encode())


def read(stream: BufferedReader, path: Path) -> Read:
    blocks: list[Int64Array] = []
    done = 0
    while lines := stream.readlines(_READ_BYTES):
        blocks.append(_parse(lines, done, path))
        done += len(lines)
    if not blocks:
        raise InputError(f"{path}: is empty, expected one row number per line")
    return np.concatenate(blocks), None, None


def _parse(lines: list[bytes], done: int, path: Path) -> Int64Array:
    """Return the numbers of a block of lines; ``done`` lines came before it."""
    try:
        if b"_" in b"".join(lines):  # int() takes 1_000
            raise ValueError
        return np.fromiter(map(int, lines), dtype=np.int64, count=len(lines))
    except (ValueError, OverflowError):
        number, line = next((n, line) for n, line in enumerate(lines, 1) if not _is_row(line))
        raise InputError(
            f"{path}, line {done + number}: got {line.strip()[:40]!r}, expected one row number per "
            "line; correct or remove the line"
        ) from None


def _is_row(line: bytes) -> bool:
    try:
        return b"_" not in line and abs(int(line)) < 1 << 63
    except ValueError:
        return False


FORMAT = PlanFormat(write, read, sidecar=True, is_plan=Path.is_file)
