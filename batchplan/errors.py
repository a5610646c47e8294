"""The exceptions, one family per exit status of the command line.

Every message is one line: what is wrong, where (path, shard, row, column), what was got and
expected, and how to fix it. Only ``batchplan.cli`` turns exceptions into exit statuses.
"""

from batchplan.text import without_secrets


class BatchplanError(Exception):
    """The base of all errors; only the families below are raised. Messages name URLs as users wrote
    them, but without keys, which must not reach a log."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class InputError(BatchplanError, ValueError):
    """The data, the plan, an option or the output path cannot be used (exit status 3)."""

    exit_code = 3


class ResourceError(BatchplanError, RuntimeError):
    """Not enough memory, or no such device (exit status 4)."""

    exit_code = 4


class OutputError(BatchplanError, OSError):
    """The output could not be written; existing files are unchanged (exit status 5)."""

    exit_code = 5
