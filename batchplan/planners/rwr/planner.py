"""BatchSampler: random walks with restart over a graph of similar rows.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, sections 4 and 5.3, algorithms 1 to 3. Each row is linked to the most similar
rows of a random sample. A batch has the rows that a walk over these links meets.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.graph.proximity import proximity_graph
from batchplan.guard.guard import guard_of
from batchplan.planners.common.draft import Draft
from batchplan.planners.rwr.options import RwrOptions
from batchplan.planners.rwr.walks import Walked, Walker, disjoint, independent
from batchplan.plans.metadata import rows_digest
from batchplan.plans.plan import Plan
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
        An order of the rows; or batches, if the options ask for a part or a sample. The plan's
        metrics are ``neighbor_similarity``, the mean over the edges of the graph; ``restart``, the
        probability; ``jumps`` and ``strays``, see `Walked`; and, if plans are excluded, the number
        of their rows, ``rows_excluded``.

    Raises:
        InputError: options or excluded plans that do not fit the data, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    n, size = embeddings.num_rows, options.rows_per_batch
    used, digests = _excluded(embeddings, options)
    guard = guard_of(embeddings, options, runtime)
    graph = proximity_graph(
        embeddings,
        options.candidate_rows,
        options.neighbors,
        runtime,
        similarity=options.similarity,
        guard=guard,
    )
    facts: dict[str, Any] = {
        "neighbor_similarity": graph.mean_similarity(),
        "restart": options.restart_now(),
    }
    order = runtime.generator(_STARTS).permutation(n)
    key = runtime.generator(_MOVES).integers(2**64, dtype=np.uint64)
    restart = facts["restart"] if options.walk == "rwr" else 0.0
    walker = Walker(graph.indices, order, key, options.walk == "bfs", restart)
    sample = options.coverage == "independent"
    if sample:
        count = options.num_batches or -(-n // size)
        with runtime.stage("walk", count * size) as advance:
            walked = independent(walker, size, count, advance)
    else:
        taken = int(np.count_nonzero(used))
        walked = _walk_epoch(walker, used, taken, options, runtime)
        if digests:
            facts["rows_excluded"] = taken
    facts = {"jumps": walked.jumps, "strays": walked.strays, **facts}
    if not sample and not options.is_part():
        return Draft(rows=walked.rows, guard=guard, facts=facts)
    count = len(walked.rows)
    return Draft(
        rows=walked.rows,
        offsets=np.append(np.arange(0, count, size), count),
        leftover=count % size > 0,
        repeatable=sample,
        guard=guard,
        facts=facts,
        stored={"exclude": digests},
    )


def _excluded(
    embeddings: Embeddings, options: RwrOptions
) -> tuple[NDArray[np.bool_], list[str] | None]:
    """Whether each row is in an excluded plan, bool (N,), and the digests of these plans."""
    used = np.zeros(embeddings.num_rows, np.bool_)
    if options.exclude is None:
        return used, None
    digests = []
    for path in options.exclude:
        plan = Plan.load(path)
        # Without the fingerprint, because the rows may have been embedded again.
        plan.metadata.require_match(embeddings.num_rows, None, f"exclude {path}: plan")
        used[plan.rows] = True
        digests.append(rows_digest(plan.rows))
    if used.all():
        raise InputError("exclude: the plans already have all rows; begin a new epoch without them")
    return used, digests


def _walk_epoch(
    walker: Walker, used: NDArray[np.bool_], taken: int, options: RwrOptions, runtime: Runtime
) -> Walked:
    """Collect the next batches of an epoch; ``taken`` of its rows are used already."""
    size = options.rows_per_batch
    rows = len(used) - taken
    if options.is_part() and options.tail == "drop":
        rows -= rows % size
        if not rows:
            raise InputError(
                f"exclude: {len(used) - taken} rows are left, no full batch of {size}; begin a new "
                "epoch, or use --tail keep"
            )
    if options.num_batches is not None:
        rows = min(rows, options.num_batches * size)
    # Batches are numbered through the epoch. So with the same embeddings, the parts of an epoch
    # together have the same batches as one plan of the whole epoch.
    first = -(-taken // size)
    with runtime.stage("walk", rows) as advance:
        return disjoint(walker, used, size, rows, first, advance)
