"""The graph that `partition` cuts: the nearest neighbours of each row within its mega-batch."""

import numpy as np

from batchplan.graph.affinity import Affinity, affinity_graph
from batchplan.graph.probing import probed_neighbors
from batchplan.planners.partition.options import PartitionOptions
from batchplan.refinement.objective import Objective
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array


def neighbor_graph(
    lists: list[Int64Array],
    start: Int64Array | None,
    objective: Objective,
    options: PartitionOptions,
    runtime: Runtime,
) -> Affinity:
    """The graph of the lists of neighbours; with none, of those that the batches of the plan to
    start from lead to."""
    x, y, size = objective.x, objective.y, options.rows_apart
    if start is not None and not lists:
        offsets = np.append(np.arange(0, len(start), size), len(start))
        guard = objective.guard
        k, reference = options.neighbors, objective.reference
        negatives = tuple(objective.negatives)
        lists = [probed_neighbors(x, y, start, offsets, k, guard, runtime, reference, negatives)]
    return affinity_graph(
        lists,
        x,
        y,
        runtime,
        negatives=objective.negatives,
        missing=objective.missing,
        ceilings=objective.guard.ceilings,
        batch_size=size,
        temperature=options.temperature,
    )
