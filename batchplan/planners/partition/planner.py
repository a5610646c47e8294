"""Batches as parts of a graph: a balanced partition that raises the training loss itself.

The loss that a batch shows is a sum of log sum_j exp(s_ij / tau), so the batches that show the most
are a partition of the rows that maximises it. A graph of nearest neighbours, whose edges weigh what
they do to the loss, is partitioned into parts of exactly the batch size by a multilevel method.
Then passes of swaps between batches raise the loss itself. Rank windows and clusters within batches
are those of B3 (Thirukovalluru et al., "Breaking the Batch Barrier (B3) of Contrastive Learning via
Smart Batch Mining", 2025). Mega-batches, random parts of the rows out of which hard negatives are
chosen, are those of Wieting and Gimpel ("ParaNMT-50M: Pushing the Limits of Paraphrastic Sentence
Embeddings with Millions of Machine Translations", ACL 2018).
"""

from typing import Any

from batchplan.data import Embeddings
from batchplan.planners.common.draft import Draft
from batchplan.planners.partition.batches import compose, draft_of
from batchplan.planners.partition.neighbors import neighbor_graph, ranked_neighbors
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.partition.problem import make_problem
from batchplan.planners.partition.units import partition_units
from batchplan.refinement.objective import make_objective
from batchplan.refinement.passes import Passes, refine_rows
from batchplan.refinement.repair import repair_rows
from batchplan.runtime import Runtime


def partition(embeddings: Embeddings, options: PartitionOptions, runtime: Runtime) -> Draft:
    """Plan by multilevel partition and refinement.

    Args:
        embeddings: N pairs of d dimensions; 2 N^2 d multiply-adds for the neighbours (N^2 d with
            one matrix), then O(N (k + B) d) a pass, in N (8 d + 280 k) bytes for k neighbours.
        options: graph, guard, refinement, dial, sources and batches.
        runtime: device (of the neighbours), memory budget, seed, progress.

    Returns:
        The batches, refined. The metrics are the ``passes`` of
        swaps made and by how much these raised the mean loss, in nats (``refine_gain``); and,
        where a guard is in force, how many pairs break it still (``broken_pairs``).

    Raises:
        InputError: options that do not fit the data, no such column, a plan to start from of
            another number of rows, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    problem = make_problem(embeddings, options, runtime)
    lists, window = ranked_neighbors(problem)
    objective = make_objective(
        embeddings,
        runtime,
        similarity=options.similarity,
        temperature=options.temperature,
        guard=problem.guard,
        penalty=options.guard_penalty,
        window=window,
        kinds=problem.sources,
    )
    graph = neighbor_graph(problem, lists, objective)
    rows, offsets = partition_units(problem, graph)
    passes = Passes(most=options.refine or 0)
    refined = refine_rows(rows, offsets, objective, graph, runtime, passes)
    rows, offsets = compose(problem, refined.rows)
    facts: dict[str, Any] = {
        "passes": refined.passes,
        "refine_gain": refined.gain / (2 * embeddings.num_rows),
    }
    if problem.guard.active:
        rows, facts["broken_pairs"] = repair_rows(rows, offsets, objective, runtime)
    return draft_of(problem, rows, offsets, facts)
