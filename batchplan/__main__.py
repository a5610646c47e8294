"""``python -m batchplan`` and the ``batchplan`` script."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn


def command_line() -> None:
    """Run the command that the arguments of this process ask for."""
    from batchplan.cli.commands import application

    application(*sys.argv[1:2])(prog_name="batchplan")


def main(work: Callable[[], object] = command_line) -> NoReturn:
    """Run the command line, or other work, and end the process with its status.

    It ends without what Python does at exit: a thread that a library has lost would be waited for,
    and a signal would find nobody to tell of it.
    """
    try:
        from batchplan.cli.process import run

        status = run(work)
    except KeyboardInterrupt:  # before there is anything that could report it
        status = 130
        os.write(2, b"interrupted\n")
    os._exit(status)


if __name__ == "__main__":
    # With -m, files of the working directory come before all modules: random.py, for instance.
    try:
        here = os.getcwd()
    except OSError:  # it was deleted, and is not there either
        here = ""
    if not sys.flags.safe_path and sys.path[0] == here:
        del sys.path[0]
    main()
