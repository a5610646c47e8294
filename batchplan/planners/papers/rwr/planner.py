"""BatchSampler: random walks with restart over a graph of similar rows.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, sections 4 and 5.3, algorithms 1 to 3. Each row is linked to the most similar
rows of a random sample. A batch has the rows that a walk over these links meets.
"""

import numpy as np

from batchplan.data import Embeddings
from batchplan.guard.guard import guard_of
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.rwr.options import RwrOptions
from batchplan.planners.papers.rwr.proximity import proximity_graph
from batchplan.planners.papers.rwr.walks import Walker, complete, disjoint, independent
from batchplan.runtime import Runtime

_STARTS, _MOVES = 3, 4  # generator streams; 1 shuffles batches, 2 draws the candidates


def rwr(embeddings: Embeddings, options: RwrOptions, runtime: Runtime) -> Draft:
    """Plan by walks over the proximity graph.

    Args:
        embeddings: N pairs of d dimensions; N M d multiply-adds, 4 N (d + 2 K) bytes.
        options: graph, walk and batches.
        runtime: seed, threads, memory budget, progress. A device is used only if all other rows are
            candidates.

    Returns:
        Batches that are samples; with ``coverage="partition"``, an order of the rows. The plan's
        metric is ``restart``, the probability.

    Raises:
        InputError: options that do not fit the data, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    n, size = embeddings.num_rows, options.rows_per_batch
    guard = guard_of(embeddings, options, runtime)
    graph = proximity_graph(
        embeddings,
        options.candidate_rows,
        options.neighbors,
        runtime,
        similarity=options.similarity,
        guard=guard,
    )
    restart = options.restart_now()
    order = runtime.generator(_STARTS).permutation(n)
    key = runtime.generator(_MOVES).integers(2**64, dtype=np.uint64)
    returning = restart if options.walk == "rwr" else 0.0
    walker = Walker(graph.indices, order, key, options.walk == "bfs", returning)
    count = -(-n // size)
    with runtime.stage("walk", count * size if options.coverage == "independent" else n) as advance:
        if options.coverage == "independent":
            rows = independent(walker, size, count, advance)
        elif options.coverage == "complete":
            wanted = n if options.tail == "pad" else n - n % size
            rows, left = complete(walker, size, wanted, advance)
            rows = np.append(rows, left) if options.tail == "keep" else rows
        else:
            rows = disjoint(walker, size, advance)
    offsets = None
    if not options.makes_partition():
        offsets = np.append(np.arange(0, len(rows), size), len(rows))
    leftover = bool(len(rows) % size)
    facts = {"restart": restart}
    return Draft(rows=rows, offsets=offsets, leftover=leftover, guard=guard, facts=facts)
