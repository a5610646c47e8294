"""The formats of a data set in plan order, one file each."""

from importlib import import_module

from batchplan.materialize.formats.contents import OutputFormat
from batchplan.materialize.options import FormatName


def format_of(name: FormatName) -> OutputFormat:
    """Return the format of this name, which is also its module's."""
    form: OutputFormat = import_module(f"{__name__}.{name}").FORMAT
    return form
