"""Profiles of hypothesis, picked with HYPOTHESIS_PROFILE: ``ci`` repeats itself exactly. Workers of
pytest-xdist share the machine."""

import os

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported
    # Threads of several workers on the same cores wait for each other at every barrier. Tests of
    # threads set their own number.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
