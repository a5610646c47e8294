"""One version's steps of planning, timed on demand: a child of `python -m tests.benchmarks speed`.

It runs as a file, with PYTHONPATH set to the version, so it uses only what both versions have. It
reads the names of steps from standard input and answers each with seconds by stage, as JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import batchplan
from batchplan.graph import EdgeBudget, build_graph
from batchplan.graph.affinity import neighbor_lists
from batchplan.guard.guard import make_guard
from batchplan.runtime import Runtime

BATCH, NEIGHBORS = 64, 16


class Stages:
    """As `batchplan.runtime.Stopwatch`, which the version before does not have."""

    def __init__(self):
        self.seconds = {}

    def start(self, stage, total): ...
    def advance(self, stage, steps): ...
    def note(self, name, value): ...

    def finish(self, stage, seconds):
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


class Steps:
    """What can be timed, on some pairs."""

    def __init__(self, embeddings):
        self.embeddings = embeddings
        self.plan = batchplan.plan(embeddings, "random", batch_size=BATCH)
        self.guard = make_guard(embeddings, Runtime(), relative_margin=0.1)

    def graph_of_quantile(self, stages):
        self._graph(EdgeBudget(quantile=0.999), stages)

    def graph_of_512(self, stages):
        self._graph(EdgeBudget(neighbors=512), stages)

    def _graph(self, budget, stages):
        build_graph(self.embeddings, budget, Runtime("cpu", observer=stages), weights=False)

    def neighbors(self, stages):
        self._neighbors(None, stages)

    def guarded_neighbors(self, stages):
        self._neighbors(self.guard, stages)

    def _neighbors(self, guard, stages):
        runtime = Runtime("cpu", observer=stages)
        neighbor_lists(self.embeddings, NEIGHBORS, runtime, similarity="cosine", guard=guard)

    def partition(self, stages):
        self._partition(stages, mega_batches=1)

    def partition_without_guard(self, stages):
        self._partition(stages, mega_batches=1, guard=False)

    def partition_in_8(self, stages):
        self._partition(stages, mega_batches=8)

    def _partition(self, stages, **options):
        runtime = {"device": "cpu", "observer": stages}
        batchplan.plan(self.embeddings, "partition", batch_size=BATCH, **runtime, **options)

    def evaluate(self, stages):
        batchplan.evaluate(self.plan, self.embeddings, device="cpu", observer=stages)


def main():
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing but answers goes to standard output
    sides = [np.load(folder / name) for name in ("x.npy", "y.npy")]
    few = Steps(batchplan.Embeddings.from_arrays(*(side[:1024] for side in sides)))
    steps = Steps(batchplan.Embeddings.from_arrays(*sides))
    compiled = set()
    for line in sys.stdin:
        name = line.strip()
        if name not in compiled:
            getattr(few, name)(Stages())
            compiled.add(name)
        stages = Stages()
        began = time.perf_counter()
        getattr(steps, name)(stages)
        total = time.perf_counter() - began
        print(json.dumps({**stages.seconds, "total": total}), file=answers)


if __name__ == "__main__":
    main()
