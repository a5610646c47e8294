"""The units of all batches: parts of the graph, of exactly the sizes that the layouts ask for."""

import sys
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch

from batchplan.graph.affinity import Affinity
from batchplan.graph.cutters import Cutters
from batchplan.graph.metis import cut
from batchplan.graph.multilevel import Cut, fit_sizes, partition_graph
from batchplan.planners.partition.layout import MegaBatch
from batchplan.planners.partition.problem import Int64Array, Problem
from batchplan.threads import in_order

_MANY = 1 << 20  # entries of a graph, which METIS takes longer for than processes do to start


def partition_units(problem: Problem, graph: Affinity) -> tuple[Int64Array, Int64Array]:
    """The rows of all units, one after the other, and where each begins."""
    parts = problem.mega_batches
    with problem.runtime.stage("partition", graph.num_rows) as advance:
        apart = problem.start is None and len(parts) > 1 and len(graph.indices) >= _MANY
        cutters = Cutters() if apart and torch.get_num_threads() > 1 and sys.executable else None
        units = []
        with cutters or nullcontext():
            work = partial(_partitioned, problem, graph, cutters.cut if cutters else cut)
            done = in_order(work, parts) if cutters else map(work, parts)
            for rows in done:
                units.append(rows)
                advance(len(rows))
    sizes = np.concatenate([layout.units for layout in problem.layouts])
    return np.concatenate(units), np.append(0, np.cumsum(sizes))


def _partitioned(problem: Problem, graph: Affinity, cut: Cut, mega_batch: MegaBatch) -> Int64Array:
    rows, sizes = mega_batch.rows, mega_batch.units
    if not len(rows):
        return rows
    among = graph if len(rows) == graph.num_rows else graph.among(rows)
    if problem.start is None:
        parts = partition_graph(among, sizes, problem.runtime.seed, cut)
    else:
        place = np.empty(graph.num_rows, np.int64)
        place[problem.start] = np.arange(len(problem.start))
        parts = np.empty(len(rows), np.int64)
        parts[np.argsort(place[rows])] = np.repeat(np.arange(len(sizes)), sizes)
    if problem.kinds is not None:
        parts = fit_sizes(among, parts, problem.kinds[rows], mega_batch.quotas)
    return rows[np.argsort(parts, kind="stable")]
