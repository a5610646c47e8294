"""A folder in which operations on files can be made to fail."""

import shutil
import tempfile
from pathlib import Path

import pytest

from .faults import Injector

IN_MEMORY = Path("/dev/shm")  # a file system on which thousands of fsyncs take no time


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, empty."""
    home = IN_MEMORY if IN_MEMORY.is_dir() else tmp_path
    made = Path(tempfile.mkdtemp(prefix="batchplan-test-", dir=home))
    monkeypatch.chdir(made)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def injector(monkeypatch, folder):
    """Disarmed."""
    return Injector(monkeypatch, folder)
