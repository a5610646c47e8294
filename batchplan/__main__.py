"""``python -m batchplan`` and the ``batchplan`` script."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn


def command_line() -> None:
    """Run the command that the arguments of this process name."""
    from batchplan.cli.commands import application

    application(*sys.argv[1:2])(prog_name="batchplan")


def main(work: Callable[[], object] = command_line) -> NoReturn:
    """Run the command line, or other work, and end the process with its status.

    This skips what Python does at exit: Python would wait for threads that libraries left behind,
    and would not report a signal in that time.
    """
    try:
        from batchplan.cli.process import run

        status = run(work)
    except ModuleNotFoundError as error:  # of what the command line itself needs
        from batchplan.extras import refusal

        if (message := refusal(error)) is None:
            raise
        status = 4
        os.write(2, f"error: {message}\n".encode())
    except KeyboardInterrupt:  # during the import, before `run` can report it
        status = 130
        os.write(2, b"interrupted\n")
    os._exit(status)


if __name__ == "__main__":
    # With -m, a file of the working directory, such as random.py, would hide another module.
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted, so it has no modules
        folder = ""
    if not sys.flags.safe_path and sys.path[0] == folder:
        del sys.path[0]
    main()
