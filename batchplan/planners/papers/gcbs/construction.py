"""Embeddings -> SimilarityGraph, in one streaming pass over tiles of X Y^T.

Guess a bracket of the threshold from a sample, keep every pair that may be above its low end, and
cut to the exact budget at the end. If the guess was wrong, which is rare, start again with a wider
one. The N x N matrix is never stored: a pass needs the rows of Y, a tile and the candidates.
"""

import math
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import torch

from batchplan.data import Embeddings
from batchplan.data.rows import load_rows
from batchplan.graph import cuda
from batchplan.graph.screen import (
    Keys,
    load_keys,
    queries_from,
    screen_width,
    screening_dtype,
)
from batchplan.planners.papers.gcbs.edge_store import EdgeStore
from batchplan.planners.papers.gcbs.scan import EdgeBlock, scan_cpu
from batchplan.planners.papers.gcbs.similarity_graph import SimilarityGraph
from batchplan.planners.papers.gcbs.threshold import Bracket, bracket, sample_similarities
from batchplan.runtime import FEWER, Runtime, full_float32
from batchplan.threads import block_height, in_order

_TILE = (2048, 1024)  # the product stays in cache until it is scanned


class _Bytes(NamedTuple):
    """The most bytes that a graph takes."""

    built: int  # per edge, while it is built
    united: int  # per edge, while it is united with its transpose
    row: int  # per row, without its numbers
    fixed: int  # for tiles, sample and kernels


# A device stores 8 bytes per candidate, with room for a quarter more than the edges. It unites in
# parts: 16 bytes before, half of them for the graph before a guard, and 8 after. Two strips of
# 2,048 rows have 512 bytes of bits for each key.
_BYTES = {"cpu": _Bytes(24, 24, 0, 256 << 20), "cuda": _Bytes(10, 24, 512, 2 << 30)}

_Collect = Callable[[Bracket, Callable[[int], None]], EdgeStore]
_Scanned = tuple[int, int, EdgeBlock | None]  # first row, end, and the candidates unless too many


@dataclass(frozen=True)
class _Task:
    """The data and the budget of a graph.

    ``spare`` is the room for candidates beyond the ``edges``: for the overshoot of the guess, and
    for one row of any length. ``dtype`` is the screening type.
    """

    embeddings: Embeddings
    normalize: bool
    edges: int
    spare: int
    dtype: torch.dtype


@dataclass(eq=False)
class _Sweep:
    """One pass over the tiles.

    It keeps pairs with a similarity of at least ``lower``; those above ``upper`` are not scored.
    ``lower`` rises when the store proves a higher threshold.
    """

    task: _Task
    keys: Keys
    lower: float
    upper: float
    advance: Callable[[int], None]


@full_float32()
def build_graph(
    embeddings: Embeddings,
    edges: int,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    weights: bool = True,
) -> SimilarityGraph:
    """The directed graph of the largest off-diagonal entries of X Y^T (GCBS section 5.1).

    Args:
        embeddings: N pairs of d dimensions.
        edges: how many entries to keep, from 1 to N (N - 1).
        runtime: device, memory budget, progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        weights: keep the similarities; without them most are never computed exactly.

    Returns:
        The edges (i, j), i != j, of the largest x_i . y_j as float32; ties go to the lower (i, j).

    Raises:
        InputError: a zero row under cosine.
        ResourceError: the graph would not fit into the memory budget, or there is no such device.
    """
    embeddings.require_similarities(similarity)
    normalize = similarity == "cosine"
    n = embeddings.num_rows
    spare = edges // 4 + n + (1 << 16)
    devices = runtime.torch_devices()
    dtype = screening_dtype(devices[0])
    what = f"{edges} edges of the similarity graph of {n} rows x {embeddings.dim}"
    for device in devices:
        runtime.require_memory(_need(embeddings, edges, dtype, device), what, FEWER, device)
    prepare = _prepare_kernels if cuda.has_kernels(devices[0]) else _prepare_tiles
    task = _Task(embeddings, normalize, edges, spare, dtype)
    with runtime.stage("prepare", 2 * n) as advance:
        collect = prepare(task, devices, runtime, advance)
    sample = sample_similarities(embeddings, devices[0], normalize, edges / (n * (n - 1)))
    widening, score_all = 1.0, weights
    while True:
        guess = bracket(sample, edges, n * (n - 1), widening)
        upper = math.inf if score_all else guess.upper
        with runtime.stage("graph", n) as advance:
            candidates = collect(Bracket(guess.lower, upper), advance)
        stored, overtaken = candidates.stored, candidates.certain >= edges
        if stored >= edges and not overtaken:
            threshold = candidates.cut(edges)
            if threshold <= upper:
                break
            overtaken = True  # pairs that were never scored may be between the two
        runtime.note("retry", f"the sampled threshold missed; {stored} of {edges} edges")
        widening *= 4
        score_all = score_all or overtaken
    return SimilarityGraph(*candidates.finish(weights), threshold)


def _need(embeddings: Embeddings, edges: int, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes for the rows of Y, in two types, and for the edges; uniting needs no rows."""
    per = _BYTES[device.type]
    rows = _rows(embeddings, dtype, per, matrices=1)
    return per.fixed + max(rows + per.built * edges, per.united * edges)


def _rows(embeddings: Embeddings, dtype: torch.dtype, per: _Bytes, matrices: int) -> int:
    """Bytes of float32 matrices of rows, and of one in the screening type."""
    n, d = embeddings.y.shape
    return n * (d * 4 * matrices + screen_width(d, dtype) * dtype.itemsize + per.row)


def _prepare_tiles(
    task: _Task, devices: list[torch.device], _runtime: Runtime, advance: Callable[[int], None]
) -> _Collect:
    keys = load_keys(task.embeddings, devices[0], task.dtype, task.normalize, advance)
    n = task.embeddings.num_rows
    index = torch.int32 if n < 2**31 else torch.int64
    capacity = min(task.edges + task.spare, n * (n - 1))

    def collect(guess: Bracket, advance: Callable[[int], None]) -> EdgeStore:
        candidates = EdgeStore(n, capacity, index, devices[0])
        _collect(_Sweep(task, keys, guess.lower, guess.upper, advance), candidates)
        return candidates

    return collect


def _prepare_kernels(
    task: _Task, devices: list[torch.device], runtime: Runtime, advance: Callable[[int], None]
) -> _Collect:
    cuda.require_triton()
    # Imported here, since Triton comes with CUDA only.
    from batchplan.graph.cuda.sweep import sides_of
    from batchplan.planners.papers.gcbs.cuda import collect

    per = _BYTES["cuda"]
    rows = _rows(task.embeddings, task.dtype, per, matrices=2)
    keep_x = min(map(runtime.memory_left, devices)) >= per.fixed + rows + per.built * task.edges
    sides = sides_of(task.embeddings, devices, task.dtype, task.normalize, keep_x, advance)

    def collect_all(guess: Bracket, advance: Callable[[int], None]) -> EdgeStore:
        return collect(sides, task.edges, task.spare, guess.lower, advance)

    return collect_all


def _collect(sweep: _Sweep, candidates: EdgeStore) -> None:
    """One pass: store every pair that may have a similarity of at least ``sweep.lower``."""
    with closing(_blocks(sweep)) as blocks:
        for start, stop, block in blocks:
            if block is None or not candidates.add(block):
                _add_crowded(sweep, candidates, start, stop)
            sweep.advance(stop - start)
            if candidates.certain > sweep.task.edges:
                break  # the guess failed: candidates without scores cannot be ranked


def _add_crowded(sweep: _Sweep, candidates: EdgeStore, start: int, stop: int) -> None:
    """Add rows that have far more candidates than the sample showed, such as many equal ones.

    Raises the threshold as far as the store proves, and takes fewer rows at a time; a single row
    always fits.
    """
    edges, todo = sweep.task.edges, [(start, stop)]
    while todo and candidates.certain <= edges:
        begin, end = todo.pop()
        if candidates.stored > edges:
            sweep.lower = candidates.cut(edges)
        block = _scan(sweep, begin, end)
        if block is None or not candidates.add(block):
            middle = (begin + end) // 2
            todo += [(middle, end), (begin, middle)]


def _blocks(sweep: _Sweep) -> Generator[_Scanned, None, None]:
    """All blocks in order, enough of them to keep every thread busy."""
    n, edges = sweep.task.embeddings.num_rows, sweep.task.edges
    # Rows whose candidates fit if no row has twice the mean.
    fitting = max(1, n * sweep.task.spare // (2 * edges))
    height = block_height(n, min(_TILE[0], fitting - fitting % 64 or fitting))

    def scanned(start: int) -> _Scanned:
        stop = min(start + height, n)
        return start, stop, _scan(sweep, start, stop)

    return in_order(scanned, range(0, n, height))


def _scan(sweep: _Sweep, start: int, stop: int) -> EdgeBlock | None:
    task, keys = sweep.task, sweep.keys
    rows = load_rows(task.embeddings.x, start, stop, keys.rows.device, task.normalize)
    queries = queries_from(rows, keys, sweep.lower, sweep.upper)
    return scan_cpu(queries, start, keys, sweep.lower, task.spare, _TILE[1])
