"""The formats of a data set in plan order, one file each."""

from importlib import import_module
from typing import get_args

from batchplan.materialize.formats.contents import OutputFormat
from batchplan.materialize.options import FormatName

# By name, the module with the FORMAT that writes it; imported on use.
FORMATS: dict[FormatName, str] = {
    name: f"batchplan.materialize.formats.{name}" for name in get_args(FormatName)
}


def format_of(name: FormatName) -> OutputFormat:
    """The format of this name."""
    form: OutputFormat = import_module(FORMATS[name]).FORMAT
    return form
