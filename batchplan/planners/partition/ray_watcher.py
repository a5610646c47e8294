"""A process that ends a local Ray cluster if the process that started it was killed.

Ray's processes then end by themselves, except for two agents, which first wait a minute. All have
files open in the folder of the cluster. This file runs as a script, with the path of that folder as
argument, and imports nothing of batchplan, so that it starts quickly.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path


def end_cluster(folder: Path) -> None:
    """Kill the processes that have files open in a folder, and remove the folder."""
    real = folder.resolve()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            files = [Path(os.readlink(file)) for file in (process / "fd").iterdir()]
            if any(file.is_relative_to(real) for file in files):
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.read()  # ends with the process that holds the other end
    end_cluster(Path(sys.argv[1]))
