"""The units of all batches: parts of the graph, of exactly the sizes that the layouts ask for."""

import numpy as np

from batchplan.graph.affinity import Affinity
from batchplan.graph.multilevel import fit_sizes, partition_graph
from batchplan.planners.partition.layout import MegaBatch
from batchplan.planners.partition.problem import Int64Array, Problem


def partition_units(problem: Problem, graph: Affinity) -> tuple[Int64Array, Int64Array]:
    """The rows of all units, one after the other, and where each begins."""
    with problem.runtime.stage("partition", graph.num_rows) as advance:
        units = []
        for part in problem.mega_batches:
            units.append(_partitioned(problem, graph, part))
            advance(len(part.rows))
    sizes = np.concatenate([layout.units for layout in problem.layouts])
    return np.concatenate(units), np.append(0, np.cumsum(sizes))


def _partitioned(problem: Problem, graph: Affinity, mega_batch: MegaBatch) -> Int64Array:
    rows, sizes = mega_batch.rows, mega_batch.units
    if not len(rows):
        return rows
    among = graph if len(rows) == graph.num_rows else graph.among(rows)
    if problem.start is None:
        parts = partition_graph(among, sizes, problem.runtime.seed)
    else:
        place = np.empty(graph.num_rows, np.int64)
        place[problem.start] = np.arange(len(problem.start))
        parts = np.empty(len(rows), np.int64)
        parts[np.argsort(place[rows])] = np.repeat(np.arange(len(sizes)), sizes)
    if problem.kinds is not None:
        parts = fit_sizes(among, parts, problem.kinds[rows], mega_batch.quotas)
    return rows[np.argsort(parts, kind="stable")]
