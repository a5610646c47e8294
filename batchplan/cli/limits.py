"""The check of the environment before a command starts."""

import os

from batchplan.errors import InputError

_MOST_THREADS = 1024


def check_threads() -> None:
    """Refuse a number of threads that would crash numba while it loads.

    Raises:
        InputError: NUMBA_NUM_THREADS is not a valid number of threads.
    """
    name = "NUMBA_NUM_THREADS"
    most = max(_MOST_THREADS, os.cpu_count() or 1)
    setting = os.environ.get(name)
    if setting is not None and not (setting.isdecimal() and 1 <= int(setting) <= most):
        raise InputError(
            f"{name}: got {setting!r} in the environment, expected a number from 1 to {most}; "
            "correct it or unset it"
        )
