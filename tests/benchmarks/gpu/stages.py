"""The stages: the tests for CUDA devices, planners of a million pairs, and fine-tuning."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import batchplan
from batchplan.data import Embeddings
from batchplan.data.matrix import RowMatrix
from batchplan.data.rows import load_all_rows, load_rows
from batchplan.graph.neighbors import neighbors_both_ways
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.planners.papers.gcbs.similarity_graph import SimilarityGraph
from batchplan.runtime import Runtime
from tests.benchmarks.gpu import training
from tests.benchmarks.gpu.record import Record
from tests.benchmarks.quality import load

Rows = np.ndarray[Any, np.dtype[np.int64]]
ROOT = Path(__file__).parents[3]
MILLION, FEW = 1_000_000, 20_000
EDGES, NEAREST = 512, 16  # of a row
BASE, TOPICS = 8192, 256  # rows that pairs are blends of, and their centres
AT_ONCE = 1 << 16  # rows made, or compared
CHECKED = 64  # rows compared with brute force


@dataclass(frozen=True)
class Bench:
    """How a stage runs, and where its figures go.

    Attributes:
        record: saves figures.
        device: cuda or cpu.
        scale: share of the rows.
        texts: the folder of weights and tokens.
        data: a folder of real pairs, see `load`; None for made ones.
    """

    record: Record
    device: str
    scale: float
    texts: Path
    data: Path | None = None

    def rows(self, full: int) -> int:
        """That number of rows, scaled."""
        return max(round(full * self.scale), 2048)

    def put(self, figure: str, value: float | str) -> None:
        """Save a figure."""
        self.record.put(figure, value)

    def timed(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """The seconds that a function takes on the host and the device, and what it returns."""
        self.synchronize()
        began = time.perf_counter()
        found = work()
        self.synchronize()
        return time.perf_counter() - began, found

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def pairs(self, full: int, dim: int) -> Embeddings:
        """Pairs made on the device, float16: a pair of some thousands, half of another, and noise
        of a fifth of its length. The thousands are those of ``data`` if they have that dimension.
        """
        generator = torch.Generator(self.device).manual_seed(0)
        base = self._real(dim) or self._made(dim, generator)
        count = self.rows(full)
        sides = [np.empty((count, dim), np.float16) for _ in range(2)]
        for start in range(0, count, AT_ONCE):
            size = min(AT_ONCE, count - start)
            own, other = torch.randint(
                len(base[0]), (2, size), generator=generator, device=self.device
            )
            for out, rows in zip(sides, base, strict=True):
                noise = torch.randn((size, dim), generator=generator, device=self.device)
                blend = rows[own] + 0.5 * rows[other] + 0.2 / dim**0.5 * noise
                out[start : start + size] = blend.half().cpu().numpy()
        return Embeddings.from_arrays(*sides)

    def _real(self, dim: int) -> list[torch.Tensor]:
        if self.data is None:
            return []
        found = load(self.data)
        if found.dim != dim:
            return []
        self.put("pairs are blends of", str(self.data))
        device = torch.device(self.device)
        return [load_all_rows(side, device, True) for side in (found.x, found.y)]

    def _made(self, dim: int, generator: torch.Generator) -> list[torch.Tensor]:
        """Pairs around the centres of topics, which share a mean of three tenths of a length."""

        def normal(count: int) -> torch.Tensor:
            rows = torch.randn((count, dim), generator=generator, device=self.device)
            return rows / dim**0.5

        topics, shared, mean = normal(TOPICS), normal(BASE), 0.3 / dim**0.5
        topic = torch.arange(BASE, device=self.device) % TOPICS
        return [torch.nn.functional.normalize(mean + topics[topic] + shared + normal(BASE))
                for _ in range(2)]  # fmt: skip

    def planned(self, data: Embeddings, planner: str, **options: Any) -> float:
        """Time a planner: wall, processor seconds, each stage, and memory; return the seconds."""
        stages, before = Stages(self), _processor()
        taken, plan = self.timed(
            lambda: batchplan.plan(
                data, planner=planner, device=self.device, observer=stages, **options
            )
        )
        processor = _processor() - before
        self.put(f"{planner}: seconds", taken)
        self.put(f"{planner}: processor seconds", processor)
        self.put(f"{planner}: processors kept busy", processor / taken)
        for stage, seconds in stages.seconds.items():
            self.put(f"{planner}: {stage}, share of the time", seconds / taken)
        for metric, value in plan.metadata.metrics.items():
            self.put(f"{planner}: {metric}", float(value))
        self.memory()
        return taken

    def memory(self) -> None:
        """Save the peaks of memory so far."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.put("peak host memory, GB", peak / 1e6)
        if self.device != "cpu":
            self.put("peak device memory, GB", torch.cuda.max_memory_allocated() / 1e9)


class Stages:
    """An observer that saves the seconds of each stage as it ends, and notes."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.seconds = bench, dict[str, float]()

    def start(self, stage: str, total: int | None) -> None:
        pass

    def advance(self, stage: str, steps: int) -> None:
        pass

    def finish(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.bench.put(f"seconds, {stage}", seconds)

    def note(self, name: str, value: object) -> None:
        self.bench.put(f"note, {name}", str(value))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def machine(bench: Bench) -> None:
    """What runs the stages."""
    bench.put("processors", float(len(os.sched_getaffinity(0))))
    if bench.device != "cpu":
        card = torch.cuda.get_device_properties(bench.device)
        bench.put("card", f"{card.name}, {card.total_memory / 2**30:.0f} GiB")
    versions = (f"{name} {version(name)}" for name in ("numpy", "numba", "pyarrow", "scipy"))
    bench.put("versions", f"Python {platform.python_version()}, torch {torch.__version__}, "
              f"CUDA {torch.version.cuda}, {', '.join(versions)}")  # fmt: skip


class Outcomes:
    """A plugin of pytest that counts outcomes, and saves each failure at once."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.counts[report.outcome] += 1
        if report.failed:
            self.bench.put(f"failed: {report.nodeid}", report.longreprtext[-2000:])


def tests(bench: Bench) -> None:
    """The tests that need a CUDA device."""
    outcomes = Outcomes(bench)
    files = [str(file) for file in sorted((ROOT / "tests").rglob("test_*.py"))
             if "mark.gpu" in file.read_text()]  # fmt: skip
    options = ["-m", "gpu", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    status = pytest.main([*options, *files], plugins=[outcomes])
    for outcome, count in outcomes.counts.items():
        bench.put(outcome, float(count))
    if status:
        raise RuntimeError(f"pytest ended with {status!r}")


def gcbs(bench: Bench) -> float:
    """`gcbs` of 10^6 pairs of 768 dimensions with 512 edges a row; return the seconds. Table 11 of
    the paper has 1,013 s on an A40."""
    few = bench.pairs(FEW, 768)
    compiling, _ = bench.timed(
        lambda: batchplan.plan(few, planner="gcbs", neighbors=64, device=bench.device)
    )
    bench.put(f"gcbs of {few.num_rows:,} pairs: seconds, with compilation", compiling)
    making, data = bench.timed(lambda: bench.pairs(MILLION, 768))
    bench.put(f"seconds to make {data.num_rows:,} pairs", making)
    seconds = bench.planned(data, "gcbs", neighbors=EDGES)
    alone = _products(bench, data.num_rows, 768)
    bench.put("seconds, bf16 products alone", alone)
    runtime = Runtime(device=bench.device)
    taken, graph = bench.timed(
        lambda: build_graph(data, EDGES * data.num_rows, runtime, weights=False)
    )
    bench.put("seconds, graph without weights", taken)
    bench.put("the products' share of it", alone / taken)
    bench.put(f"rows of {CHECKED} unlike brute force", float(_unlike(graph, data)))
    return seconds


def neighbors(bench: Bench) -> None:
    """The 16 nearest both ways, of 10^6 pairs of 768 dimensions."""
    runtime = Runtime(device=bench.device)
    few = bench.pairs(FEW, 768)
    compiling, _ = bench.timed(lambda: neighbors_both_ways(few, NEAREST, runtime))
    bench.put(f"{few.num_rows:,} pairs: seconds, with compilation", compiling)
    data = bench.pairs(MILLION, 768)
    taken, found = bench.timed(lambda: neighbors_both_ways(data, NEAREST, runtime))
    bench.put(f"{data.num_rows:,} pairs: seconds", taken)
    for name, way, (rows, others) in zip(
        ("y of x", "x of y"), found, ((data.x, data.y), (data.y, data.x)), strict=True
    ):
        checked = _evenly(data.num_rows)
        best = _similarities(rows, others, checked, bench.device).topk(NEAREST).indices.numpy()
        same = [len(np.intersect1d(one, two)) for one, two in
                zip(best, np.asarray(way.indices)[checked], strict=True)]  # fmt: skip
        bench.put(f"recall of {CHECKED} rows, {name}", float(np.mean(same)) / NEAREST)
    bench.memory()


def partition(bench: Bench) -> None:
    """`partition` of 10^6 pairs of 384 dimensions, with default options."""
    few = bench.pairs(FEW, 384)
    compiling, _ = bench.timed(
        lambda: batchplan.plan(few, planner="partition", device=bench.device)
    )
    bench.put(f"partition of {few.num_rows:,} pairs: seconds, with compilation", compiling)
    data = bench.pairs(MILLION, 384)
    bench.planned(data, "partition")


def _products(bench: Bench, rows: int, dim: int) -> float:
    """Seconds of X Y^T in tiles, from some of them."""
    height, width, times = (8192, 65536, 20) if bench.device != "cpu" else (2048, 2048, 1)
    x, y = (torch.randn(size, dim, device=bench.device, dtype=torch.bfloat16)
            for size in (height, width))  # fmt: skip
    out = torch.empty(height, width, device=bench.device, dtype=torch.bfloat16)
    torch.mm(x, y.T, out=out)
    taken, _ = bench.timed(lambda: [torch.mm(x, y.T, out=out) for _ in range(times)])
    return taken / times * rows * rows / (height * width)


def _evenly(count: int) -> Rows:
    return np.linspace(0, count - 1, CHECKED).astype(np.int64)


def _similarities(rows: RowMatrix, others: RowMatrix, checked: Rows, device: str) -> torch.Tensor:
    """The cosines of some rows with all others, (CHECKED, N) on the host, -inf for the own pair."""
    place, count = torch.device(device), rows.shape[0]
    one = torch.cat([load_rows(rows, row, row + 1, place, True) for row in checked]).double()
    parts = []
    for first in range(0, count, AT_ONCE):
        two = load_rows(others, first, min(first + AT_ONCE, count), place, True).double()
        parts.append((one @ two.T).float().cpu())
    exact = torch.cat(parts, 1)
    exact[torch.arange(len(checked)), torch.from_numpy(checked)] = -torch.inf
    return exact


def _unlike(graph: SimilarityGraph, data: Embeddings) -> int:
    """How many of some rows lack an edge above the threshold, or have one below it."""
    checked = _evenly(graph.num_rows)
    exact = _similarities(data.x, data.y, checked, graph.device.type)
    edges = torch.zeros(exact.shape, dtype=torch.bool)
    for place, row in enumerate(checked):
        start, end = graph.indptr[row : row + 2].tolist()
        edges[place, graph.indices[start:end].long().cpu()] = True
    wrong = ((exact > graph.threshold) & ~edges) | ((exact < graph.threshold) & edges)
    return int(wrong.any(1).sum())


FUNCTIONS: dict[str, Callable[[Bench], object]] = {
    "machine": machine,
    "tests": tests,
    "gcbs": gcbs,
    "neighbors": neighbors,
    "partition": partition,
    "training": lambda bench: training.measure(bench, 10_240),
    "training-large": lambda bench: training.measure(bench, 100_000),
}
