"""The candidate edges of a graph: all pairs whose similarity reaches a threshold."""

from collections.abc import Callable
from contextlib import closing

import torch

from batchplan.graph.cuda.sweep import DeviceSides, Hits, Limits, strips
from batchplan.planners.papers.gcbs.edge_store import EdgeStore
from batchplan.planners.papers.gcbs.scan import EdgeBlock


def collect(
    sides: DeviceSides, edges: int, spare: int, lower: float, advance: Callable[[int], None]
) -> EdgeStore:
    """Collect all pairs with a similarity of at least ``lower``; if they are too many, the
    ``edges`` largest.

    Args:
        sides: N pairs.
        edges: how many the graph will keep.
        spare: room for candidates beyond them.
        lower: the threshold, which rises whenever the room is full.
        advance: called with the number of rows done.

    Returns:
        Candidates on the first device, each with its exact similarity.
    """
    n = sides.embeddings.num_rows
    candidates = EdgeStore(n, min(edges + spare, n * (n - 1)), torch.int32, sides.device)

    def limits(worker: int) -> Limits:
        device = sides.keys[worker].rows.device
        none = torch.full((n,), torch.inf, device=device)
        return Limits(torch.full((n,), lower, device=device), none)

    with closing(strips(sides, limits, edges / n)) as swept:
        for pairs in swept:
            lower = _add(candidates, pairs, edges, lower)
            advance(pairs.stop - pairs.start)
    return candidates


def _add(candidates: EdgeStore, pairs: Hits, edges: int, lower: float) -> float:
    """Store pairs; returns the threshold, which rises if the room was full."""
    device = candidates.device
    rows, columns, scores = (part.to(device) for part in (pairs.rows, pairs.columns, pairs.scores))
    bounds = torch.arange(pairs.start, pairs.stop + 1, dtype=torch.int32, device=device)
    while len(rows):
        reach = scores >= lower  # it may have risen since the strip began
        rows, columns, scores = rows[reach], columns[reach], scores[reach]
        some, rest = slice(candidates.room), slice(candidates.room, None)
        counts = torch.searchsorted(rows[some], bounds).diff()
        candidates.add(EdgeBlock(pairs.start, counts, columns[some], scores[some], certain=0))
        rows, columns, scores = rows[rest], columns[rest], scores[rest]
        if len(rows):
            lower = candidates.cut(edges)
    return lower
