"""GCBS: sparsify X Y^T at a quantile, then order the rows by reverse Cuthill-McKee.

Sachidananda, Yang and Zhu, "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", ICML 2023, section 5 and appendix J. Similar rows are close to each other in the
order, so the batches that are cut from it have many hard negatives.
"""

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.guard import guard_of
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.planners.papers.gcbs.options import GcbsOptions
from batchplan.planners.papers.gcbs.ordering import cuthill_mckee
from batchplan.runtime import Runtime


def gcbs(embeddings: Embeddings, options: GcbsOptions, runtime: Runtime) -> Draft:
    """Plan by quantile sparsification and (reverse) Cuthill-McKee.

    Args:
        embeddings: N pairs of d dimensions; all work is O(N^2 d), all memory O(edges + N d).
        options: edge budget, order, guard and batches.
        runtime: device, memory budget, seed (of shuffled batches only), progress.

    Returns:
        An order of the rows. The plan's metric is the number of ``edges``, without those that the
        guard forbids.

    Raises:
        InputError: options that do not fit the data, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    count = edge_count(embeddings.num_rows, options)
    keep_apart = guard_of(embeddings, options, runtime)
    weights = keep_apart.ceilings is not None
    edges = build_graph(
        embeddings, count, runtime, similarity=options.similarity, weights=weights
    ).without(keep_apart, embeddings, runtime, similarity=options.similarity)
    with runtime.stage("order"):
        order = cuthill_mckee(edges, reverse=options.reverse)
    return Draft(rows=order.cpu().numpy(), guard=keep_apart, facts={"edges": edges.num_edges})


def edge_count(num_rows: int, options: GcbsOptions) -> int:
    """Return the number of edges, at least 1. With ``neighbors``, the quantile is 1 - neighbors / N
    (GCBS appendix J).

    Raises:
        InputError: ``neighbors`` is not below the number of rows.
    """
    if options.neighbors is None:
        return max(1, round((1 - options.quantile) * num_rows * (num_rows - 1)))
    if options.neighbors >= num_rows:
        raise InputError(
            f"neighbors: got {options.neighbors}, expected fewer than the {num_rows} rows "
            f"(at most {num_rows - 1})"
        )
    return options.neighbors * num_rows
