"""The process of a planner in `compare`, which ends with the process that started it.

Its standard input is a pipe that only the other holds open, and never writes to: however that
process ends, the pipe does.
"""

import os
import signal
import time
from threading import Thread

from batchplan.__main__ import main

_PATIENCE = 5  # seconds to remove what it began to write


def _end_with_the_pipe() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    Thread(target=_end_with_the_pipe, daemon=True).start()
    main()
