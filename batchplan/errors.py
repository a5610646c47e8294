"""The exceptions, in three families.

Every message is one line: what is wrong, where (path, shard, row, column), what was got and
expected, and how to fix it. The command line ends with an exit status for each family
(`batchplan.cli.statuses`).
"""

from batchplan.pages import linked

_MOST, _END = 480, 220  # characters of a message, and those that are kept of its end


class BatchplanError(Exception):
    """The base of all errors; only the families below are raised."""

    def __init__(self, message: object = "") -> None:
        """Make the error; of a long message, as by many columns, the middle is left out."""
        text = linked(str(message))
        if len(text) > _MOST:
            text = f"{text[: _MOST - _END - 5]} ... {text[-_END:]}"
        super().__init__(text)


class InputError(BatchplanError, ValueError):
    """The data, the plan, an option or the output path cannot be used."""


class OptionError(InputError):
    """The value of an option can be used with no data, or not beside another option."""


class ResourceError(BatchplanError, RuntimeError):
    """Not enough memory, no such device, or a package that is not installed."""


class MissingPackageError(ResourceError, ModuleNotFoundError):
    """A package is not installed; the message says what installs it."""


class OutputError(BatchplanError, OSError):
    """The output could not be written; the message says what became of existing files."""
