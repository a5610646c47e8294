"""The file formats of embeddings; docs/extending.md shows how to add another.

An `ArrayFormat` has one matrix per file, a `TensorFormat` several with names; both are mapped into
memory. A `TableFormat` has named columns of both sides and of ids, and is decoded once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from batchplan.files.inputs import INPUT_FORMATS, has_input_suffix, suffixes
from batchplan.files.kinds import unknown_suffix
from batchplan.files.remote import ShardPath

if TYPE_CHECKING:  # arrays need no Arrow
    from batchplan.data.formats.arrays import ArrayFormat
    from batchplan.data.formats.tables import TableFormat
    from batchplan.data.formats.tensors import TensorFormat


def format_of(path: ShardPath) -> "ArrayFormat | TableFormat | TensorFormat":
    """Return the format that the suffix of a file names.

    Raises:
        InputError: an unknown suffix, or none.
    """
    module = INPUT_FORMATS.get(path.suffix.lower())
    if module is None:
        raise unknown_suffix(path, suffixes())
    form: ArrayFormat | TableFormat | TensorFormat = import_module(module).FORMAT
    return form


def has_columns(path: ShardPath) -> bool:
    """Return whether the suffix of a file names a `TableFormat`."""
    return has_input_suffix(path) and format_of(path).has_columns
