"""The exceptions, one family per exit status of the command line.

Every message is one line and says what is wrong, where (path, shard, row, column), what was got,
what was expected and how to mend it. The library raises; only ``batchplan.cli`` turns an exception
into an exit status.
"""


class BatchplanError(Exception):
    """Anything batchplan refuses to do; never raised itself, only its families below."""

    exit_code = 1


class InputError(BatchplanError, ValueError):
    """The data, the plan, an option or the output path cannot be used (exit status 3)."""

    exit_code = 3


class ResourceError(BatchplanError, RuntimeError):
    """Not enough memory, or the device asked for is missing (exit status 4)."""

    exit_code = 4


class OutputError(BatchplanError, OSError):
    """The output could not be written; what was there before is still there (exit status 5)."""

    exit_code = 5
