"""What writes one of two contents into the working directory; none of it loads torch, so that it
runs in `tests.faults.copies`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchplan.files.atomic import made_folder, write_files


def save(contents: Sequence[Any], path: str, ids: Any, one: int) -> None:
    """Save one of some plans or tables."""
    contents[one].save(path, force=True, ids=ids)


def write_report(contents: Sequence[dict[Any, bytes]], one: int) -> None:
    with made_folder(Path("pictures")):
        write_files(contents[one])


def write_check(contents: Sequence[dict[Any, bytes]], one: int) -> None:
    write_files(contents[one])
