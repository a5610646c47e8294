"""Processes that start as copies of one that has loaded what they need: torch takes two seconds."""

import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext


def copies_of(*modules: str) -> ForkServerContext:
    """A context of multiprocessing whose processes have these modules loaded.

    The first call in this process decides on the modules, and on the variables of the environment.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    kept = os.environ.get("PYTHONSAFEPATH")
    # Files of the working directory, such as random.py, would hide other modules.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONSAFEPATH"]
        if kept is not None:
            os.environ["PYTHONSAFEPATH"] = kept
    return context
