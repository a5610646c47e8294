"""Requests that do not fit are refused before anything is allocated; what is said to fit does."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from batchplan import ResourceError
from batchplan.data import Embeddings
from batchplan.planners.papers.gcbs import construction
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.runtime import Runtime

N, D = 2000, 16


@pytest.fixture
def embeddings():
    return Embeddings.from_arrays(
        np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    )


def left(monkeypatch, size):
    monkeypatch.setattr(Runtime, "memory_left", lambda *_: size)


def refused(embeddings, neighbors, runtime=None):
    with pytest.raises(ResourceError) as error:
        build_graph(embeddings, neighbors * N, runtime or Runtime(device="cpu"))
    message = str(error.value)
    assert "\n" not in message
    return message


def test_names_what_is_needed_and_left(embeddings, monkeypatch):
    allocated = []
    load = construction.load_keys
    monkeypatch.setattr(construction, "load_keys", lambda *a: (allocated.append(a), load(*a))[1])
    left(monkeypatch, 300_000_000)
    message = refused(embeddings, 1900)
    assert not allocated
    assert f"{1900 * N} edges of the similarity graph of {N} rows x {D} need" in message
    assert re.search(r"need \d+\.\d MB of memory and 300\.0 MB is left", message)
    assert "or use fewer --neighbors" in message
    cpu = torch.device("cpu")
    need = construction._need(embeddings, 600 * N, construction.screening_dtype(cpu), cpu)
    assert 1 << 28 < need < 300_000_000
    left(monkeypatch, need - 1)
    refused(embeddings, 600)
    assert not allocated
    left(monkeypatch, need)
    assert build_graph(embeddings, 600 * N, Runtime(device="cpu")).num_edges == 600 * N
    assert allocated


@pytest.mark.parametrize("size", [0, -5, 1000, construction._BYTES["cpu"].fixed])
def test_nothing_fits(embeddings, monkeypatch, size):
    left(monkeypatch, size)
    assert "-5" not in refused(embeddings, 1)


def test_a_budget_of_the_caller(embeddings):
    message = refused(embeddings, 10, Runtime(device="cpu", memory=50_000_000))
    assert "0 B is left" in message
    assert "--memory" in message


SCRIPT = """
import numpy as np
from batchplan import plan
from batchplan.data import Embeddings
from batchplan.errors import ResourceError
from batchplan.planners.papers.gcbs.construction import _BYTES
from batchplan.runtime import resident_memory

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

def data(n):
    return Embeddings.from_arrays(np.random.default_rng(0).random((n, 32), dtype=np.float32))

plan(data(300), planner="gcbs", device="cpu", neighbors=20)  # compile first
embeddings = data(4000)
memory = resident_memory() + (256 << 20) + (200 << 20)
fits = (200 << 20) // (4000 * _BYTES["cpu"].united)
try:
    plan(embeddings, planner="gcbs", device="cpu", neighbors=fits + 50, memory=memory)
    raise SystemExit("it fits")
except ResourceError:
    pass
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew, after the compiler's
before, memory_before = status("VmRSS"), resident_memory()
made = plan(embeddings, planner="gcbs", device="cpu", neighbors=fits - 50, memory=memory)
print(made.metadata.metrics["edges"], status("VmHWM") - before, memory - memory_before)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux")
def test_a_plan_stays_within_its_memory():
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    edges, used, allowed = map(int, result.stdout.split())
    assert edges > 6000 * 1000
    assert used > 4 * edges  # something was measured
    assert used <= allowed
