"""``python -m tests.benchmarks.partition_rows N``: partition and refine N made-up rows, whose
neighbours are known without comparing all rows, in a process of its own so that its peak of memory
is that of the work."""

from __future__ import annotations

import sys
import time

import numpy as np
from numpy.typing import NDArray

import batchplan
from batchplan.graph.affinity import affinity_graph
from batchplan.graph.parts import parts_of
from batchplan.refinement import make_objective, refine_rows
from batchplan.runtime import Runtime, peak_memory

DIM, NEIGHBORS, BATCH, CLUSTER, PASSES = 64, 16, 64, 48, 4


def rows_and_neighbors(count: int) -> tuple[list[NDArray[np.float32]], NDArray[np.int64]]:
    """x and y in clusters, and each row's neighbours: of its cluster, and of a related one."""
    generator = np.random.default_rng(0)
    clusters = -(-count // CLUSTER)
    centres = generator.standard_normal((clusters, DIM), np.float32)
    # A related cluster shares half of its centre, so that clusters do not fall apart.
    centres[1:] += centres[generator.integers(0, np.arange(1, clusters))]
    own = generator.permutation(np.arange(count) % clusters)
    sides = [
        centres[own] + 0.9 * generator.standard_normal((count, DIM), np.float32) for _ in range(2)
    ]
    order = np.argsort(own, kind="stable")
    starts = np.searchsorted(own[order], np.arange(clusters))
    sizes = np.bincount(own, minlength=clusters)
    related = (own + 1 + generator.integers(0, 3, count)) % clusters
    lists = np.empty((count, NEIGHBORS), np.int64)
    for k in range(NEIGHBORS):
        which = own if k < NEIGHBORS * 3 // 4 else related
        lists[:, k] = order[starts[which] + generator.integers(0, sizes[which])]
    lists[lists == np.arange(count)[:, None]] = -1
    return sides, lists


def main() -> None:
    count = int(sys.argv[1])
    runtime = Runtime("cpu")
    sides, lists = rows_and_neighbors(count)
    embeddings = batchplan.Embeddings.from_arrays(*sides)
    objective = make_objective(embeddings, runtime, similarity="cosine", temperature=0.05)
    affinity = affinity_graph(
        [lists], objective.x, objective.y, runtime, batch_size=BATCH, temperature=0.05
    )
    del sides, lists
    began = time.perf_counter()
    sizes = np.diff(np.append(np.arange(0, count, BATCH), count))
    rows = np.argsort(parts_of(affinity, sizes, runtime), kind="stable")
    split = time.perf_counter()
    offsets = np.append(0, np.cumsum(sizes))
    made = refine_rows(rows, offsets, objective, affinity, runtime, PASSES)
    ended = time.perf_counter()
    print(f"edges={len(affinity.indices)}", f"partition_s={split - began:.1f}", end=" ")
    print(f"refine_s={ended - split:.1f}", f"passes={made.passes}", end=" ")
    print(f"mean_loss_gain={made.gain / 2 / count:.4f}", f"peak_GB={peak_memory() / 1e9:.2f}")


main()
