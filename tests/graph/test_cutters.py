"""Graphs that are cut by processes: the same parts, and what happens when these end."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymetis
import pytest

from batchplan import plan
from batchplan.data import Embeddings
from batchplan.errors import ResourceError
from batchplan.graph.cutters import Cutters
from batchplan.graph.cutters import _request as request
from batchplan.graph.cutters import _start as start
from batchplan.planners.partition import together


def ring(n, kind=np.int32, seed=0):
    """A ring of n rows with weights at random, and chords of three."""
    ends = np.arange(n)
    rows, columns = np.concatenate([ends, ends]), np.concatenate([(ends + 1) % n, (ends + 3) % n])
    values = np.random.default_rng(seed).random(2 * n).astype(np.float32) + 0.1
    rows, columns = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    order = np.lexsort((columns, rows))
    indptr = np.append(0, np.cumsum(np.bincount(rows)))
    return indptr, columns[order].astype(kind), np.tile(values, 2)[order]


def cut(graph, parts, seed):
    """What METIS makes of it in this process."""
    indptr, indices, weights = graph
    weights = np.clip(np.rint(weights * (100 / float(weights.mean()))), 1, 10**6).astype(np.int64)
    options = pymetis.Options(seed=seed % (2**31 - 1) + 1, ufactor=200)
    adjacency = pymetis.CSRAdjacency(adj_starts=indptr, adjacent=indices.astype(np.int64))
    parts = pymetis.part_graph(parts, adjacency, eweights=weights, recursive=False, options=options)
    return np.asarray(parts[1], np.int64)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_other_processes_cut_alike(kind, block, monkeypatch):
    monkeypatch.setattr("batchplan.graph.cutters._BLOCK", block)
    graph = ring(600, kind)
    with Cutters() as cutters:
        for seed in (0, 1, 2**31 - 1, 2**63 + 5):
            assert np.array_equal(cutters.cut(graph, 12, seed), cut(graph, 12, seed))


def test_many_graphs_at_once_and_in_turn():
    graphs = [ring(200 + 40 * i, seed=i) for i in range(9)]
    with Cutters() as cutters, ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda graph: cutters.cut(graph, 7, 1), graphs))
        assert len(cutters._all) <= 3
    for graph, parts in zip(graphs, found, strict=True):
        assert np.array_equal(parts, cut(graph, 7, 1))
    assert all(process.poll() is not None for process in cutters._all)


def test_a_process_that_ends_is_told_of():
    graph = ring(100)
    with Cutters() as cutters:
        cutters.cut(graph, 3, 0)
        os.kill(cutters._all[0].pid, signal.SIGKILL)
        with pytest.raises(ResourceError, match=r"ended \(killed by SIGKILL,.*--mega-batch-rows"):
            cutters.cut(graph, 3, 0)


def test_a_process_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr("batchplan.processes._START", "raise MemoryError('no room')")
    with Cutters() as cutters, pytest.raises(ResourceError, match="MemoryError: no room"):
        cutters.cut(ring(100), 3, 0)


@pytest.mark.parametrize("program", [None, "", "/nowhere/python"])
def test_no_process_can_be_started(program, monkeypatch):
    monkeypatch.setattr("sys.executable", program)
    with (
        Cutters() as cutters,
        pytest.raises(ResourceError, match=r"could be started .* is .*Python"),
    ):
        cutters.cut(ring(100), 3, 0)


def test_rows_without_entries():
    """Of which METIS makes what it likes, but parts."""
    graph = np.zeros(21, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    with Cutters() as cutters:
        assert set(cutters.cut(graph, 4, 0)) <= set(range(4))


def test_leaving_ends_those_at_work():
    """In the middle of a graph, as Ctrl-C does."""
    graph, failed = ring(400_000), []

    def work(cutters):
        with pytest.raises(ResourceError) as told:
            cutters.cut(graph, 4000, 0)
        failed.append(str(told.value))

    with Cutters() as cutters:
        thread = threading.Thread(target=work, args=[cutters])
        thread.start()
        while not cutters._all:
            pass
    thread.join(60)
    assert not thread.is_alive()
    assert "SIGKILL" in failed[0]


@pytest.fixture
def pairs():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 8)).astype(np.float32)
    return Embeddings.from_arrays(x, x + rng.standard_normal((400, 8)).astype(np.float32) / 2)


@pytest.mark.parametrize("options", [{}, {"relative_margin": None}])
def test_plans_are_the_same_however_many_processes(options, pairs, monkeypatch, use_threads):
    def planned():
        return plan(pairs, batch_size=8, mega_batches=5, neighbors=6, **options).rows

    started = []
    monkeypatch.setattr(together, "Cutters", lambda: started.append(Cutters()) or started[-1])
    alone = planned()
    use_threads(3)
    assert np.array_equal(planned(), alone)
    first, second = (len(cutters._all) for cutters in started)
    assert first == 1  # as there is one thread
    assert 1 <= second <= 3


@pytest.fixture
def drawing():
    """Another thread draws random numbers of the C library all the time, as one of Ray may."""
    rand, ended = ctypes.CDLL(None).rand, threading.Event()

    def draw():
        while not ended.is_set():
            rand()

    thread = threading.Thread(target=draw)
    yield thread.start
    ended.set()
    thread.join()


@pytest.mark.parametrize(("mega_batches", "threads"), [(1, 1), (3, 3)])
def test_other_threads_draw_random_numbers_too(pairs, drawing, use_threads, mega_batches, threads):
    use_threads(threads)
    alone = plan(pairs, batch_size=8, mega_batches=mega_batches).rows
    drawing()
    for _ in range(3):
        assert np.array_equal(plan(pairs, batch_size=8, mega_batches=mega_batches).rows, alone)


SCRIPT = """
import numpy as np
import torch
import batchplan
torch.set_num_threads(2)
x = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
rows = batchplan.plan(batchplan.Embeddings.from_arrays(x), batch_size=8, mega_batches=3).rows
print(np.sort(rows).tolist() == list(range(200)))
"""


def test_a_script_needs_no_guard(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_request_that_arrives_during_another_one():
    """The signal of a write may come long after the bytes can be read: a process that waited for
    signals of that pipe ended by SIGIO now and then, on busy machines."""
    process, graph = start(), ring(600)
    asked = [b"".join(numbers.tobytes() for numbers in request(graph, 12, seed)) for seed in (0, 1)]
    labels = np.empty(600, np.int64)
    with process:
        process.stdin.write(asked[0] + asked[1][:100])
        process.stdin.flush()
        process.stdin.write(asked[1][100:200])
        process.stdin.flush()
        for seed in (0, 1):
            assert process.stdout.readinto(labels.data) == labels.nbytes, process.wait()
            assert np.array_equal(labels, cut(graph, 12, seed))
            if not seed:
                process.stdin.write(asked[1][200:])
                process.stdin.close()
        assert process.wait(20) == 0
