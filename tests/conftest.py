"""Profiles of hypothesis, picked with HYPOTHESIS_PROFILE: ``ci`` repeats itself exactly. Workers of
pytest-xdist share the machine."""

import os
from pathlib import Path

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # before torch or numba is imported
    # Threads of several workers on the same cores wait for each other at every barrier. Tests of
    # threads set their own number.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Processes that compile at the same time may mix up the files of a cache that they share.
    root = Path(__file__).parents[1]
    os.environ.setdefault("NUMBA_CACHE_DIR", str(root / ".numba_cache" / worker))
