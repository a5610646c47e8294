"""Plans mega-batches on a Ray cluster, with the same bytes as in this process.

A task is a mega-batch. It names files and rows, and its worker reads these, so no vectors pass
through this process. Ray tries a task again if its worker ends, but not if it raises an error.
"""

import logging
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from typing import Any

from batchplan.data import Embeddings
from batchplan.errors import BatchplanError, InputError, ResourceError
from batchplan.planners.partition.mega_batch import Planned
from batchplan.planners.partition.problem import Problem
from batchplan.planners.partition.ray_task import work
from batchplan.plans.metadata import library_versions
from batchplan.runtime import WARNING, Runtime, format_bytes, usable_processors

_LOCAL = "local"  # the address of a cluster on this machine that ends with the run
_RETRIES = 3  # of a mega-batch whose workers end
_AHEAD = 2  # tasks in flight for each that can run: those that wait make an autoscaler add nodes
_PATIENCE = 10  # seconds to wait for a result before the CPUs are counted again
_STORE = 100 * 10**6  # bytes of the object store of a local cluster; a task takes 1 MB
_PROCESS = 700 * 10**6  # bytes of a worker's libraries and kernels


def plan_on_ray(
    problem: Problem, numbers: Sequence[int], runtime: Runtime
) -> Generator[tuple[int, Planned]]:
    """Plan mega-batches as `plan_all` does, on the cluster of ``options.ray``.

    Raises:
        InputError: embeddings that were not read from files; or an error of a worker's files.
        ResourceError: no Ray, no such cluster, nodes too small, other versions on a worker, or a
            mega-batch whose workers ended 1 + `_RETRIES` times.
    """
    embeddings, options = problem.embeddings, problem.options
    if not isinstance(embeddings, Embeddings) or (origin := embeddings.origin) is None:
        raise InputError(
            "ray: got embeddings in memory, expected files that the workers can open; save them "
            "with np.save where all nodes see them, and load these files"
        )
    reference = None if problem.reference is None else problem.reference.origin
    if not numbers:
        return
    with _connected(str(options.ray), runtime) as ray:
        share = _share(ray, problem, len(numbers), runtime)
        plan_there = ray.remote(work).options(
            num_cpus=share["CPU"], num_gpus=share["GPU"], memory=share["memory"],
            max_retries=_RETRIES,
        )  # fmt: skip
        versions = dict(library_versions())
        there = replace(runtime, device="cuda" if share["GPU"] else "cpu", observer=None)

        def submit(number: int) -> Any:
            mega_batch = problem.mega_batches[number]
            task = origin, reference, mega_batch, options, there, share["CPU"]
            return plan_there.remote(pickle.dumps(task), versions)

        with runtime.stage("plan", len(numbers)) as advance:
            kinds: set[str] = set()
            for number, planned in _results(ray, submit, numbers, share["CPU"]):
                _warn_of_kinds(kinds, planned.outcome.arithmetic, runtime)
                advance(1)
                yield number, planned


def _results(
    ray: Any, submit: Callable[[int], Any], numbers: Sequence[int], cpus: int
) -> Iterator[tuple[int, Planned]]:
    """The batches of each mega-batch, in the order in which they are finished. Leaving early
    cancels those in flight."""
    waiting = deque(numbers)
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            most = max(1, int(_AHEAD * ray.cluster_resources().get("CPU", 0) // cpus))
            while waiting and len(running) < most:
                number = waiting.popleft()
                running[submit(number)] = number
            for reference in ray.wait(list(running), timeout=_PATIENCE)[0]:
                yield running.pop(reference), ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BatchplanError):
            raise error.cause from error
        raise ResourceError(f"ray: {_first_line(error.cause)}") from error
    except ray.exceptions.RayError as error:
        raise ResourceError(f"ray: {_first_line(error)}") from error
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _share(ray: Any, problem: Problem, tasks: int, runtime: Runtime) -> dict[str, int]:
    """The CPUs, GPUs and bytes of memory of each task. CPUs are shared equally, up to all of the
    largest node."""
    nodes, options = [node["Resources"] for node in ray.nodes() if node["Alive"]], problem.options
    has_gpus = any(node.get("GPU") for node in nodes)
    if runtime.device.startswith("cuda") and not has_gpus:
        raise ResourceError(
            f"device {runtime.device}: no node of the Ray cluster has a GPU; use --device cpu"
        )
    rows = max(len(mega_batch.rows) for mega_batch in problem.mega_batches)
    row = 280 * options.neighbors
    for vectors in (problem.embeddings, problem.reference):
        if isinstance(vectors, Embeddings):
            row += 8 * vectors.dim * len(vectors.matrices)
    gpus, memory = int(has_gpus and runtime.device != "cpu"), _PROCESS + rows * row
    share = {"CPU": 1, "GPU": gpus, "memory": memory}
    if not any(all(node.get(name, 0) >= need for name, need in share.items()) for node in nodes):
        wish = (
            f"ray: mega-batches of up to {rows:,} rows need a CPU{' and a GPU' * gpus} and "
            f"{format_bytes(memory)} of memory each, and no node has these"
        )
        if options.ray == _LOCAL:
            raise ResourceError(f"{wish}; make them smaller (--mega-batch-rows)")
        runtime.note(WARNING, f"{wish}; waiting for one")
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    return {**share, "CPU": max(1, min(max(cpus, default=0), sum(cpus) // tasks))}


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _warn_of_kinds(kinds: set[str], kind: str, runtime: Runtime) -> None:
    """Add a kind of processor, with a warning if there were only others."""
    if kinds and kind not in kinds:
        runtime.note(
            WARNING,
            f"ray: nodes have several kinds of processor ({', '.join(sorted({kind, *kinds}))}), "
            "whose sums differ in their last digits; another run may give another plan, as good",
        )
    kinds.add(kind)


@contextmanager
def _connected(address: str, runtime: Runtime) -> Iterator[Any]:
    """Ray, connected to a cluster. A local cluster is started and ended here; another is not."""
    import ray

    if ray.is_initialized():  # the caller has connected to a cluster
        yield ray
        return
    own: dict[str, Any] = {}
    with ExitStack() as stack:
        if address == _LOCAL:
            folder = stack.enter_context(
                TemporaryDirectory(prefix="batchplan-ray-", ignore_cleanup_errors=True)
            )
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            own = {"num_cpus": usable_processors(), "include_dashboard": False, "_temp_dir": folder}
            own |= {"object_store_memory": _STORE, "_memory": max(runtime.memory_left(), 1)}
        ended = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except Exception as error:
            raise ResourceError(
                f"ray: cannot use a cluster at {address!r} ({_first_line(error)}); expected local, "
                "auto, or the address of a running one, such as 10.0.0.1:6379"
            ) from error
        try:
            if current_thread() is main_thread():  # Ray has set its own handler
                signal.signal(signal.SIGTERM, ended)
            yield ray
        finally:
            ray.shutdown()
