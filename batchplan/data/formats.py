"""The file formats of embeddings, one file each; docs/adding_an_input_format.md shows how to add
one.

There are two kinds. An `ArrayFormat` is one matrix a file, mapped into memory where it lies. A
`TableFormat` has named columns, which may hold both sides and ids, and is decoded once.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from batchplan.data.arrays import ArrayFormat
from batchplan.files.inputs import INPUT_FORMATS

if TYPE_CHECKING:  # who reads arrays needs no Arrow
    from batchplan.data.tables import TableFormat


def format_of(path: Path) -> ArrayFormat | TableFormat | None:
    """The format that the suffix of a file names, None if it names none."""
    module = INPUT_FORMATS.get(path.suffix.lower())
    return import_module(module).FORMAT if module else None
