"""Embeddings -> SimilarityGraph in one streaming pass over tiles of X Y^T.

Guess the threshold from a sample, keep every pair that may be above the low end of the guess and
cut to the exact budget at the end. In the rare case that the guess was wrong, start again with a
wider one. The N x N matrix is never held: a pass needs the rows of Y, one tile and the candidates.
"""

import math
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

import torch

from batchplan.data import Embeddings
from batchplan.data.rows import load_rows
from batchplan.graph.budget import EdgeBudget, neighbors_that_fit
from batchplan.graph.candidates import Candidates
from batchplan.graph.scan import Block, ScanLimits, scan_cpu, scan_torch
from batchplan.graph.screen import Keys, load_keys, queries_from, screening_dtype
from batchplan.graph.similarity_graph import SimilarityGraph
from batchplan.graph.threshold import bracket, sample_similarities
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_order

_TILE = (1024, 1024)  # the product stays in cache until it is scanned
_CUDA_TILE = (4096, 32768)  # enough work a launch to fill the card
# What building a graph and uniting it with its transpose takes at most: bytes an edge (on CUDA,
# sorting the 2 E keys of the union), and bytes for tiles, sample and kernels.
_BYTES = {"cpu": (24, 256 << 20), "cuda": (80, 2 << 30)}

_Scanned = tuple[int, int, Block | None]  # first row, end, and the candidates unless too many


@dataclass(eq=False)
class _Sweep:
    """One pass over the tiles: its data, and what it keeps.

    Pairs of a similarity of ``lower`` or more are kept, those above ``upper`` without scoring;
    ``lower`` rises when the store proves a higher threshold. ``spare`` is the room for candidates
    beyond the budget of ``edges``: the overshoot of the guess and one row of any length.
    """

    embeddings: Embeddings
    keys: Keys
    normalize: bool
    edges: int
    spare: int
    lower: float
    upper: float
    advance: Callable[[int], None]


@full_float32()
def build_graph(
    embeddings: Embeddings,
    budget: EdgeBudget,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    weights: bool = True,
) -> SimilarityGraph:
    """The directed graph of the largest off-diagonal entries of X Y^T (GCBS section 5.1).

    Args:
        embeddings: N pairs of d dimensions.
        budget: how many entries to keep; exactly that many are.
        runtime: device, memory budget, progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        weights: keep the similarities; without them most are never computed exactly.

    Returns:
        A graph with ``budget.edges(N)`` edges (i, j), i != j, the largest x_i . y_j as float32; of
        equal ones the lower (i, j) first.

    Raises:
        InputError: a zero row under cosine, or neighbours >= N.
        ResourceError: the graph would not fit the memory budget, or there is no such device.
    """
    embeddings.require_similarities(similarity)
    normalize = similarity == "cosine"
    n = embeddings.num_rows
    edges = budget.edges(n)
    device = runtime.torch_device()
    dtype = screening_dtype(device)
    _require_memory(embeddings, edges, dtype, runtime, device)
    with runtime.stage("prepare", 2 * n) as advance:
        keys = load_keys(embeddings, device, dtype, normalize, advance)
    sample = sample_similarities(embeddings.x, keys, normalize, edges / (n * (n - 1)))
    widening, score_all = 1.0, weights
    spare = edges // 4 + n + (1 << 16)
    while True:
        guess = bracket(sample, edges, n * (n - 1), widening)
        upper = math.inf if score_all else guess.upper
        with runtime.stage("graph", n) as advance:
            candidates = _collect(
                _Sweep(embeddings, keys, normalize, edges, spare, guess.lower, upper, advance)
            )
        stored, overtaken = candidates.stored, candidates.certain >= edges
        if stored >= edges and not overtaken:
            threshold = candidates.cut(edges)
            if threshold <= upper:
                break
            overtaken = True  # some of the pairs never scored may lie between the two
        runtime.note("retry", f"the sampled threshold missed; {stored} of {edges} edges")
        widening *= 4
        score_all = score_all or overtaken
    return SimilarityGraph(*candidates.finish(weights), symmetric=False, threshold=threshold)


def _require_memory(
    embeddings: Embeddings, edges: int, dtype: torch.dtype, runtime: Runtime, device: torch.device
) -> None:
    n, d = embeddings.num_rows, embeddings.dim
    an_edge, fixed = _BYTES[device.type]
    rows = n * (d * 4 + (d + 4) * dtype.itemsize) + fixed
    what = f"{edges} edges of the similarity graph of {n} rows x {d}"
    hint = neighbors_that_fit(rows, an_edge * n)
    runtime.require_memory(rows + an_edge * edges, what, hint, device)


def _collect(sweep: _Sweep) -> Candidates:
    """One pass: every pair that may have a similarity of ``sweep.lower`` or more."""
    n, device = sweep.embeddings.num_rows, sweep.keys.rows.device
    index = torch.int32 if n < 2**31 else torch.int64
    candidates = Candidates(n, min(sweep.edges + sweep.spare, n * (n - 1)), index, device)
    blocks = _blocks_on_cpu(sweep) if device.type == "cpu" else _blocks_on_cuda(sweep)
    with closing(blocks):
        for start, stop, block in blocks:
            if block is None or not candidates.add(block):
                _add_crowded(sweep, candidates, start, stop)
            sweep.advance(stop - start)
            if candidates.certain >= sweep.edges:
                break  # the guess failed: these cannot be told apart
    return candidates


def _add_crowded(sweep: _Sweep, candidates: Candidates, start: int, stop: int) -> None:
    """Add rows with far more candidates than sampled, such as a mass of equal similarities.

    Raises the threshold to what the store already proves, and takes the rows in smaller bites;
    a single row always fits.
    """
    todo = [(start, stop)]
    while todo and candidates.certain < sweep.edges:
        begin, end = todo.pop()
        if candidates.stored > sweep.edges:
            sweep.lower = candidates.cut(sweep.edges)
        block = _scan(sweep, begin, end, _TILE[1])
        if block is None or not candidates.add(block):
            middle = (begin + end) // 2
            todo += [(middle, end), (begin, middle)]


def _blocks_on_cpu(sweep: _Sweep) -> Generator[_Scanned, None, None]:
    """All blocks in order, enough of them to keep every thread busy."""
    n = sweep.embeddings.num_rows
    height = min(_TILE[0], max(64, math.ceil(n / (4 * torch.get_num_threads()))))

    def scanned(start: int) -> _Scanned:
        stop = min(start + height, n)
        return start, stop, _scan(sweep, start, stop, _TILE[1])

    return in_order(scanned, range(0, n, height))


def _blocks_on_cuda(sweep: _Sweep) -> Generator[_Scanned, None, None]:
    """All blocks in order; a tile that the device cannot hold is halved from then on."""
    n = sweep.embeddings.num_rows
    height, width = _CUDA_TILE
    start = 0
    while start < n:
        stop = min(start + height, n)
        try:
            block = _scan(sweep, start, stop, width)
        except torch.cuda.OutOfMemoryError:
            if height <= 64:
                raise
            height, width = height // 2, width // 2
            torch.cuda.empty_cache()
            continue
        yield start, stop, block
        start = stop


def _scan(sweep: _Sweep, start: int, stop: int, width: int) -> Block | None:
    device = sweep.keys.rows.device
    rows = load_rows(sweep.embeddings.x, start, stop, device, sweep.normalize)
    queries = queries_from(rows, sweep.keys, sweep.lower, sweep.upper)
    scan = scan_cpu if device.type == "cpu" else scan_torch
    return scan(queries, start, sweep.keys, ScanLimits(sweep.lower, sweep.spare, width))
