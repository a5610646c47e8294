"""Profiles of hypothesis, picked with HYPOTHESIS_PROFILE: ``ci`` repeats itself exactly. Workers of
pytest-xdist share the machine."""

import functools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests.loaded import ROOT, Programs, ready

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported
    # Threads of several workers on the same cores wait for each other at every barrier.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Nor do threads of the processes that tests start keep a core busy while they wait.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_configure(config):
    """The process that starts the workers loads no library: they wait for it."""
    if config.getoption("numprocesses", None):
        config.programs = Programs(Path(tempfile.mkdtemp(prefix="programs-")))
        return
    import torch

    if not torch.cuda.is_available():  # kernels for CUDA devices run on the CPU
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported


def pytest_configure_node(node):
    node.workerinput["programs"] = str(node.config.programs.folder)


def pytest_unconfigure(config):
    if programs := getattr(config, "programs", None):
        programs.end()
        shutil.rmtree(programs.folder)


@pytest.fixture(autouse=True, scope="session")
def _made_once():
    """The commands, which take longer than most tests."""
    import typer.testing

    commands = functools.cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", commands)
        yield


@pytest.fixture(scope="session")
def programs(request, tmp_path_factory):
    """The folder of `tests.loaded.Programs`."""
    if given := getattr(request.config, "workerinput", {}).get("programs"):
        yield ready(Path(given))
    else:
        own = Programs(tmp_path_factory.mktemp("programs"))
        yield ready(own.folder)
        own.end()


@pytest.fixture(scope="session")
def some(tmp_path_factory):
    """A third of the sample data."""
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("some") / "pairs.parquet"
    pq.write_table(pq.read_table(ROOT / "sample_data" / "pairs.parquet").slice(0, 700), path)
    return path


@pytest.fixture
def interruptible():
    """SIGINT and SIGHUP do here, and in processes that start here, what they do at a terminal.

    nohup and the background of a shell ignore them, which processes inherit; such runs of the tests
    stay as deaf as they were but for the tests of these signals.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def use_threads():
    """A function that sets the number of threads of torch, for a test of threads.

    It is 1 otherwise: on so few rows, threads that wait for each other cost more than they bring.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch.set_num_threads
    torch.set_num_threads(before)
