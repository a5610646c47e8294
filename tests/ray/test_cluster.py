"""Plans from a Ray cluster are those of a single process, whatever happens to its workers."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import batchplan
from batchplan import InputError, ResourceError
from batchplan.planners.partition import ray_cluster
from tests.guard.test_known import Graph, collisions

pytest.importorskip("ray", reason="pip install batchplanner[ray]")
pytestmark = pytest.mark.usefixtures("cluster")
SLOW = """
import os, time
from batchplan.__main__ import main
from batchplan.planners.partition import ray_cluster
def work(task, versions):
    with open({marker!r} + str(os.getpid()), "x"):
        time.sleep(600)
ray_cluster.work = work
main()
"""


@pytest.fixture
def before_each(monkeypatch):
    """Let workers do something before each task; it must import what it needs."""

    def set_up(first):
        def plan_there(task, versions):
            first()
            from batchplan.planners.partition.ray_task import work

            return work(task, versions)

        monkeypatch.setattr(ray_cluster, "work", plan_there)

    return set_up


def killer(folder, times):
    """Kills its own process, as often as this."""

    def kill():
        import os
        import signal

        for number in range(times):
            try:
                open(f"{folder}/{number}", "x").close()
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def test_mined_negatives(plan_on, tmp_path):
    """Workers read them from their own files."""
    rng = np.random.default_rng(0)
    names = [str(tmp_path / f"{name}.npy") for name in ("x", "y", "first", "second")]
    for name in names:
        rows = rng.standard_normal((600, 8)).astype(np.float32)
        rows[rng.random(600) < 0.2 * (name in names[2:])] = 0
        np.save(name, rows)
    data = batchplan.load_embeddings(*names[:2], negatives=names[2:])
    planned = [plan_on(address, data=data) for address in (None, "auto")]
    assert np.array_equal(planned[0].rows, planned[1].rows)
    assert planned[0].metadata.fingerprint == planned[1].metadata.fingerprint


@pytest.mark.parametrize("negatives", [0, 1])
def test_known_answers_never_meet(plan_on, tmp_path, negatives):
    """Also if two mega-batches have them, which are planned separately."""
    graph = Graph(negatives, 400, (260, 270), negatives, more=100)
    sides = {"x": graph.x, "y": graph.y} | {f"n{k}": own for k, own in enumerate(graph.negatives)}
    files = [str(tmp_path / f"{name}.npy") for name in sides]
    for file, side in zip(files, sides.values(), strict=True):
        np.save(file, side)
    data = batchplan.load_embeddings(*files[:2], negatives=files[2:] or None)
    ids = graph.table(tmp_path / "ids.parquet")
    planned = [plan_on(address, data=data, tail="pad", **ids) for address in (None, "auto")]
    assert np.array_equal(planned[0].rows, planned[1].rows)
    assert collisions(graph.known(), planned[1].rows, planned[1].batch_offsets) == 0


def test_same_bytes_as_without_ray(plan_on, same, notes):
    same(plan_on("auto", notes))
    assert notes.done == 5
    assert not notes["warning"]


def test_options_reach_the_workers(plan_on, chosen):
    options, expected = chosen
    plan = plan_on("auto", **options)
    assert (plan.rows.tobytes(), plan.batch_offsets.tobytes(), plan.metadata) == expected


def test_parquet(plan_on, same, shards, tmp_path):
    sides = {
        name: pa.array(list(np.concatenate([np.load(path) for path in side])))
        for name, side in zip("xy", shards, strict=True)
    }
    pq.write_table(pa.table(sides), tmp_path / "pairs.parquet")
    same(plan_on("auto", data=batchplan.load_embeddings(tmp_path / "pairs.parquet")))


def test_killed_workers_are_replaced(plan_on, same, before_each, tmp_path):
    before_each(killer(tmp_path, 2))
    same(plan_on("auto"))
    assert len(list(tmp_path.iterdir())) == 2


def test_killed_again_and_again(plan_on, before_each, tmp_path):
    before_each(killer(tmp_path, 1000))
    with pytest.raises(ResourceError, match=r"^ray: .*worker"):
        plan_on("auto")


def test_missing_shard(plan_on, shards, tmp_path):
    x, y = shards
    moved = tmp_path / "x.npy"
    moved.write_bytes(x[0].read_bytes())
    data = batchplan.load_embeddings([moved, x[1]], y)
    moved.rename(tmp_path / "elsewhere.npy")
    with pytest.raises(InputError, match=rf"^node [0-9.]+: {moved}: no such file"):
        plan_on("auto", data=data)
    moved.write_bytes(x[0].read_bytes())
    with pytest.raises(InputError, match=rf"^node [0-9.]+: {moved}: got .* written at"):
        plan_on("auto", data=data)


def test_other_versions(plan_on, monkeypatch):
    versions = {**ray_cluster.library_versions(), "batchplan": "0.0.1"}
    monkeypatch.setattr(ray_cluster, "library_versions", lambda: versions)
    with pytest.raises(ResourceError, match=r"^node .*batchplan .* instead of 0\.0\.1"):
        plan_on("auto")


def test_no_batchplan_on_a_worker(plan_on, monkeypatch, tmp_path):
    """A worker that lacks the module of the function."""
    (tmp_path / "only_here.py").write_text("def work(task, versions): ...")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(ray_cluster, "work", importlib.import_module("only_here").work)
    with pytest.raises(ResourceError, match=r"^ray: .*failed to import on the worker"):
        plan_on("auto")


def test_embeddings_in_memory(plan_on, shards):
    data = batchplan.Embeddings.from_arrays(np.load(shards[0][0]))
    with pytest.raises(InputError, match=r"^ray: got embeddings in memory"):
        plan_on("auto", data=data)


def test_nodes_come_and_go(plan_on, same, cluster, another_node, before_each, tmp_path):
    """A third node joins, gets a task, and is taken away before the task is done."""
    third = another_node()
    name, begun, planned = third.node_id, tmp_path / "begun", threading.Event()

    def wait_there():
        import time

        import ray

        if ray.get_runtime_context().get_node_id() == name:
            open(f"{tmp_path}/begun", "w").close()
            time.sleep(600)

    def take_away():  # by the task, which may begin when all others are done
        while not begun.exists() and not planned.wait(0.05):
            pass
        cluster.remove_node(third, allow_graceful=False)

    before_each(wait_there)
    watch = threading.Thread(target=take_away)
    watch.start()
    try:
        same(plan_on("auto"))
    finally:
        planned.set()
        watch.join()
    assert begun.exists()


def test_mixed_processors_are_told_of(plan_on, another_node, before_each, notes):
    another_node(env_vars={"ATEN_CPU_CAPABILITY": "default"})

    def linger():
        import time

        time.sleep(1)

    before_each(linger)
    plan = plan_on("auto", notes, mega_batches=6)
    assert len(notes["warning"]) == 1
    assert "several kinds of processor" in notes["warning"][0]
    assert len(plan.metadata.metrics["arithmetics"]) == 2


def test_device_of_the_cluster(plan_on, another_node):
    with pytest.raises(ResourceError, match="no node of the Ray cluster has a GPU"):
        plan_on("auto", device="cuda")
    another_node(num_gpus=1)
    if not torch.cuda.is_available():
        with pytest.raises(ResourceError, match=r"^node .*sees no CUDA device"):
            plan_on("auto", device="cuda")


def test_resumes(plan_on, same, before_each, tmp_path, notes):
    """What is done is kept by this process, and not planned again."""
    before_each(killer(tmp_path, 0))
    (tmp_path / "kept").mkdir()

    class StopError(Exception):
        pass

    def stop(stage, steps):
        if stage == "plan":
            notes.done += 1
            if notes.done == 3:
                raise StopError

    advance, notes.advance = notes.advance, stop
    with pytest.raises(StopError):
        plan_on("auto", notes, resume=str(tmp_path / "kept"))
    notes.advance, notes.done = advance, 0
    same(plan_on("auto", notes, resume=str(tmp_path / "kept")))
    assert 0 < notes.done < 5


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("own", [True, False], ids=["local", "running"])
def test_interrupt(own, cluster, plan_on, same, shards, tmp_path):
    """Tasks are cancelled. A cluster that was there stays, one of our own is ended."""
    process, tasks = begun(*shards, "local" if own else cluster.address, tmp_path)
    process.send_signal(signal.SIGINT)
    assert b"interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    for task in tasks:
        wait_for_the_end_of(int(task.name.removeprefix("task-")))
    same(plan_on("auto"))


def begun(x, y, address, folder):
    """A command that plans on a cluster, in its own session, and the files of its first tasks."""
    command = [sys.executable, "-c", SLOW.format(marker=f"{folder}/task-"), "partition", *x]
    command += [word for path in y for word in ("--pair", path)]
    command += ["--mega-batches", "4", "--ray", address]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, start_new_session=True)
    while len(tasks := list(folder.glob("task-*"))) < 2:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    return process, tasks


def wait_for_the_end_of(process):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"process {process} runs on")


def test_few_tasks_are_in_flight():
    """Twice as many as the nodes can run, however many mega-batches wait."""
    most, left = 0, set()

    def submit(number):
        nonlocal most
        left.add(number)
        most = max(most, len(left))
        return number

    ray = nodes(3, 2)
    ray.get = lambda number: left.remove(number) or number
    ray.wait = lambda running, timeout: (running[-1:], running[:-1])
    results = ray_cluster._results(ray, submit, range(50), 1)
    assert {number for number, _ in results} == set(range(50))
    assert most == 10


def nodes(*resources):
    """Ray with nodes of so many CPUs."""
    memory = 10**11
    alive = [{"Alive": True, "Resources": {"CPU": cpus, "memory": memory}} for cpus in resources]
    return SimpleNamespace(nodes=lambda: alive, cluster_resources=lambda: {"CPU": sum(resources)})


def to_share(data, rows, ray):
    """A problem with one mega-batch of this many rows."""
    options = batchplan.planners.PLANNERS["partition"].options(ray=ray)
    mega_batches = [SimpleNamespace(rows=range(rows))]
    return SimpleNamespace(
        embeddings=data, options=options, mega_batches=mega_batches, reference=None
    )


@pytest.mark.parametrize(
    ("cpus", "tasks", "each"),
    [((8, 8), 2, 8), ((8, 8), 3, 5), ((8, 8), 16, 1), ((8, 8), 100, 1), ((2, 16), 2, 9)],
)
def test_tasks_share_the_processors(shards, cpus, tasks, each):
    data = batchplan.load_embeddings(*shards)
    problem = to_share(data, 100, "auto")
    share = ray_cluster._share(nodes(*cpus), problem, tasks, batchplan.Runtime())
    assert share["CPU"] == each


def test_too_little_memory(shards):
    data = batchplan.load_embeddings(*shards)
    problem = to_share(data, 10**9, "local")
    with pytest.raises(ResourceError, match="mega-batches of up to 1,000,000,000 rows need"):
        ray_cluster._share(nodes(4), problem, 2, batchplan.Runtime())
