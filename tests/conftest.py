"""Profiles of hypothesis, picked with HYPOTHESIS_PROFILE: ``ci`` repeats itself exactly."""

import os

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
