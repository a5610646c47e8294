"""Mega-batches planned by the workers of a Ray cluster, to the same bytes as by this process.

A task is a mega-batch. It names files and rows, and its worker reads these, so that no vectors pass
through this process. A task whose worker ends is tried again; one that raises an error is not.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from typing import Any

from batchplan.data import Data, Embeddings
from batchplan.errors import InputError, ResourceError
from batchplan.planners.partition import ray_watcher
from batchplan.planners.partition.mega_batch import Planned
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.partition.problem import Problem
from batchplan.planners.partition.ray_task import Done, Task
from batchplan.plans.metadata import library_versions
from batchplan.runtime import NODES, WARNING, Runtime, format_bytes, usable_processors
from batchplan.text import without_secrets

_LOCAL = "local"  # the address of a cluster of this machine, for this run alone
_TRIES = 4  # of a mega-batch whose workers end
_AHEAD = 2  # tasks in flight for each that can run: the next ones wait, and tell an autoscaler
_PATIENCE = 10  # seconds to wait for a result before the nodes are counted again
_STORE = 100 * 10**6  # bytes of the object store of a local cluster; a task takes 1 MB
_PROCESS = 700 * 10**6  # bytes that a worker takes for libraries and kernels
_FULL = ("ObjectStoreFullError", "OutOfDiskError")  # as Ray names them
_METIS = 5_000  # bytes that it takes for a row


@dataclass(frozen=True)
class _Share:
    """What a task takes of a node: CPUs, GPUs, and bytes of memory."""

    cpus: int
    gpus: int
    memory: int

    def options(self) -> dict[str, int]:
        """As Ray names them."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": self.memory}

    def places(self, nodes: Sequence[dict[str, Any]]) -> int:
        """How many tasks these nodes run at once."""
        needs = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return sum(
            min(int(node["Resources"].get(name, 0) // need) for name, need in needs.items() if need)
            for node in nodes
            if node["Alive"]
        )


def plan_on_ray(
    problem: Problem,
    numbers: Sequence[int],
    embeddings: Data,
    options: PartitionOptions,
    runtime: Runtime,
) -> Generator[tuple[int, Planned]]:
    """As `batchplan.planners.partition.together.plan_all`, on the cluster of ``options.ray``.

    Raises:
        InputError: embeddings that were not read from files; or what a worker says of its files.
        ResourceError: no Ray, no such cluster, nodes too small, other versions on a worker, or a
            mega-batch whose workers end again and again.
    """
    if not isinstance(embeddings, Embeddings) or (origin := embeddings.origin) is None:
        raise InputError(
            "ray: got embeddings in memory, expected files that the workers can open; save them "
            "with np.save where all nodes see them, and load these files"
        )
    reference = None if problem.reference is None else problem.reference.origin
    if not numbers:
        return
    with _connected(str(options.ray), runtime) as ray:
        share = _share(ray, problem, len(numbers), embeddings, options, runtime)
        plan_there = ray.remote(_on_worker()).options(**share.options(), max_retries=0)
        versions = dict(library_versions())

        def submit(number: int) -> Any:
            mega_batch = problem.mega_batch(number)
            device = "cuda" if share.gpus else "cpu"
            seed, memory = runtime.seed, runtime.memory
            task = Task(origin, reference, mega_batch, options, seed, device, memory, share.cpus)
            return plan_there.remote(pickle.dumps(task), versions)

        with runtime.stage("plan", len(numbers)) as advance:
            tally = _Tally(runtime)
            for number, done in _results(ray, submit, numbers, share, runtime):
                tally.add(done)
                advance(1)
                yield number, done.planned
        runtime.note(NODES, tally.seconds)


def _on_worker() -> Callable[[bytes, dict[str, str]], Done]:
    """What a worker runs. Ray sends the code of a function within a function, so that a worker that
    lacks this module, as its batchplan is another one, can say so."""

    def plan_there(task: bytes, versions: dict[str, str]) -> Done:
        import ray

        from batchplan.planners.partition.ray_task import work

        return work(task, versions, ray.util.get_node_ip_address())

    return plan_there


def _results(
    ray: Any,
    submit: Callable[[int], Any],
    numbers: Sequence[int],
    share: _Share,
    runtime: Runtime,
) -> Iterator[tuple[int, Done]]:
    """What becomes of each mega-batch, in the order in which they get done; leaving early cancels
    those in flight."""
    waiting, lost = deque(numbers), Counter[int]()
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            places = share.places(ray.nodes())
            while waiting and len(running) < max(_AHEAD * places, 1):
                number = waiting.popleft()
                running[submit(number)] = number
            for reference in ray.wait(list(running), timeout=_PATIENCE)[0]:
                number = running.pop(reference)
                try:
                    yield number, ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise _ours(error.cause) from error
                except ray.exceptions.RayError as error:
                    if type(error).__name__ in _FULL:
                        raise
                    lost[number] += 1
                    if lost[number] == _TRIES:
                        raise ResourceError(_too_often(number, error)) from error
                    runtime.note(
                        "ray", f"mega-batch {number}: its worker ended, so it is planned again"
                    )
                    waiting.append(number)
    except Exception as error:
        if type(error).__name__ in _FULL:
            raise ResourceError(
                f"ray: the object store of the cluster is full ({_first_line(error)}); end what "
                "holds objects there, start it with more (ray start --object-store-memory), or "
                "free the disk of its temporary folder"
            ) from error
        raise
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _share(
    ray: Any,
    problem: Problem,
    tasks: int,
    embeddings: Embeddings,
    options: PartitionOptions,
    runtime: Runtime,
) -> _Share:
    """What each task takes: as many CPUs as let all run at once, or else a single one."""
    nodes = ray.nodes()
    has_gpus = any(node["Resources"].get("GPU") for node in nodes if node["Alive"])
    if runtime.device.startswith("cuda") and not has_gpus:
        raise ResourceError(
            f"device {runtime.device}: no node of the Ray cluster has a GPU; use --device cpu"
        )
    rows = max(len(dealt.rows) for dealt in problem.dealt)
    of_row = 280 * options.neighbors + _METIS
    for vectors in (embeddings, problem.reference):
        of_row += 0 if vectors is None else 8 * vectors.dim * len(vectors.matrices)
    gpus, memory = int(has_gpus and runtime.device != "cpu"), _PROCESS + rows * of_row
    share = _Share(1, gpus, memory)
    if not share.places(nodes):
        wish = (
            f"ray: mega-batches of up to {rows:,} rows need a CPU{' and a GPU' * gpus} and "
            f"{format_bytes(memory)} of memory each, and no node has these"
        )
        if options.ray == _LOCAL:
            raise ResourceError(f"{wish}; make them smaller (--mega-batch-rows)")
        runtime.note(WARNING, f"{wish}; waiting for one")
    most = int(max((node["Resources"].get("CPU", 0) for node in nodes if node["Alive"]), default=0))
    shares = (_Share(cpus, gpus, memory) for cpus in range(2, most + 1))
    return max(
        (more for more in shares if more.places(nodes) >= tasks),
        default=share,
        key=lambda more: more.cpus,
    )


def _ours(cause: BaseException) -> BaseException:
    """The error to raise for what a task raised."""
    if isinstance(cause, ImportError):
        return ResourceError(
            f"ray: a worker cannot load batchplan ({cause}); install the same version on all nodes"
        )
    return cause


def _too_often(number: int, error: Exception) -> str:
    return (
        f"mega-batch {number}: {_TRIES} workers ended while they planned it "
        f"({_first_line(error)}); they may lack memory: make mega-batches smaller "
        "(--mega-batch-rows), or look into the logs of Ray"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


class _Tally:
    """Adds up what workers tell.

    Attributes:
        seconds: of each stage, by node.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.seconds: dict[str, dict[str, float]] = {}
        self._runtime = runtime
        self._kinds: set[str] = set()

    def add(self, done: Done) -> None:
        kind = done.planned.outcome.arithmetic
        if self._kinds and kind not in self._kinds:
            kinds = ", ".join(sorted({kind, *self._kinds}))
            self._runtime.note(
                WARNING,
                f"ray: nodes have several kinds of processor ({kinds}), whose sums differ in their "
                "last digits; another run may give another plan, as good",
            )
        self._kinds.add(kind)
        stages = self.seconds.setdefault(done.node, {})
        for stage, taken in done.seconds.items():
            stages[stage] = round(stages.get(stage, 0.0) + taken, 4)


@contextmanager
def _connected(address: str, runtime: Runtime) -> Iterator[Any]:
    """Ray, connected to a cluster, which is left as it was; a local one is started, and ended."""
    try:
        import ray
    except ImportError as error:
        raise ResourceError(
            f"ray: cannot be loaded ({error}); pip install 'batchplan[ray]'"
        ) from error
    if ray.is_initialized():  # by the caller, who chose its cluster
        yield ray
        return
    own: dict[str, Any] = {}
    with ExitStack() as stack:
        if address == _LOCAL:
            folder = stack.enter_context(_watched_folder())
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            own = {"num_cpus": usable_processors(), "include_dashboard": False, "_temp_dir": folder}
            own |= {"object_store_memory": _STORE, "_memory": max(runtime.memory_left(), 1)}
        ended = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except Exception as error:
            shown = without_secrets(address)
            raise ResourceError(
                f"ray: cannot use a cluster at {shown!r} "
                f"({_first_line(error).replace(address, shown)}); expected local, auto, or the "
                "address of a running one, such as 10.0.0.1:6379"
            ) from error
        try:
            if current_thread() is main_thread():  # Ray has put its own in its place
                signal.signal(signal.SIGTERM, ended)
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _watched_folder() -> Iterator[str]:
    """A folder for a local cluster; both end with this process, even if it is killed."""
    with (
        TemporaryDirectory(prefix="batchplan-ray-", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, "-P", "-S", ray_watcher.__file__, folder],
            stdin=subprocess.PIPE, start_new_session=True,
        ) as watcher,
    ):  # fmt: skip
        try:
            yield folder
        finally:
            watcher.kill()
