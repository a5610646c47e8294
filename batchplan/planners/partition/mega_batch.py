"""A mega-batch: the unit of work, which is planned alone, anywhere, to the same bytes.

Steps: neighbours -> graph -> parts -> swaps -> repair. Everything follows from the vectors of its
rows, what a `MegaBatch` holds, the options and the seed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from batchplan.data import Data, Embeddings
from batchplan.graph.affinity import Affinity, neighbor_lists
from batchplan.graph.cutters import Cutters, Graph
from batchplan.graph.listed import listed_affinity
from batchplan.graph.multilevel import fit_sizes, sized_parts
from batchplan.graph.screen import arithmetic
from batchplan.guard.guard import make_guard
from batchplan.options import Tail
from batchplan.planners.partition.neighbors import neighbor_graph
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.partition.shares import shares_of
from batchplan.refinement.objective import make_objective
from batchplan.refinement.passes import Passes, refine_rows
from batchplan.refinement.repair import repair_rows
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array


@dataclass(frozen=True, eq=False)
class MegaBatch:
    """Rows that are planned together, and what there is to know of them beside their vectors.

    Attributes:
        rows: int64 (n,), which rows of the data they are, in rising order.
        sizes: int64 (P,), how many go into each batch, falling; n in all.
        tail: what becomes of a short last batch: ``keep``, ``drop``, or ``pad`` with the rows
            before it.
        groups: int64 (n,), rows of the same code are kept apart, -1 is no code; None for no groups.
        usual: the usual positive of all rows of the data, as `make_guard` takes it.
        kinds: int64 (n,), the source of each row, from 0 on, where every batch is to have its share
            of each; else None.
        start: int64 (n,), the rows, numbered from 0, in the order of the plan to start from; None
            without one.
    """

    rows: Int64Array
    sizes: Int64Array
    tail: Tail = "keep"
    groups: Int64Array | None = None
    usual: float | None = None
    kinds: Int64Array | None = None
    start: Int64Array | None = None

    @property
    def batch_sizes(self) -> Int64Array:
        """int64 (batches,): those that are made, after the tail."""
        if self.tail == "keep" or self.sizes[-1] == self.sizes[0]:
            return self.sizes
        return self.sizes[:-1] if self.tail == "drop" else np.full_like(self.sizes, self.sizes[0])


class Outcome(NamedTuple):
    """What became of a mega-batch.

    Attributes:
        passes: of swaps made.
        gain: by how much these raised the sum of the losses of all rows, both ways, in nats.
        broken: pairs that break the guard still; None where no guard is in force.
        arithmetic: of the machine, which the last digits of sums depend on.
    """

    passes: int
    gain: float
    broken: int | None
    arithmetic: str


class Planned(NamedTuple):
    """The batches of a mega-batch.

    Attributes:
        order: int64 (entries,), its rows, numbered from 0, batch after batch.
        outcome: what became of it.
    """

    order: Int64Array
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class Cutting:
    """What a process of `Cutters` is to do."""

    graph: Graph
    parts: int
    seed: int


def plan_mega_batch(
    embeddings: Data,
    mega_batch: MegaBatch,
    options: PartitionOptions,
    runtime: Runtime,
    cutters: Cutters,
    reference: Embeddings | None = None,
) -> Planned:
    """Plan a mega-batch.

    Args:
        embeddings: of its n rows alone, see `Embeddings.take`: n^2 d multiply-adds for the
            neighbours (half with one matrix), then O(n (k + B) d) a pass; or lists, see
            `Candidates.take`, without that search.
        mega_batch: the rows.
        options: graph, guard, refinement and batches; sources are the caller's.
        runtime: device, memory budget, seed, progress.
        cutters: the processes that cut graphs.
        reference: of the same n rows, if the guard has one.

    Raises:
        InputError: a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    steps = steps_of(embeddings, mega_batch, options, runtime, reference)
    try:
        asked = next(steps)
        while True:
            with runtime.stage("partition"):
                labels = cutters.cut(asked.graph, asked.parts, asked.seed)
            asked = steps.send(labels)
    except StopIteration as end:
        planned: Planned = end.value
        return planned


def steps_of(
    embeddings: Data,
    mega_batch: MegaBatch,
    options: PartitionOptions,
    runtime: Runtime,
    reference: Embeddings | None = None,
) -> Generator[Cutting, Int64Array, Planned]:
    """`plan_mega_batch`, except that the caller cuts the graph that this yields, and sends the
    labels. So several mega-batches can wait for METIS while another is worked at."""
    groups = [] if mega_batch.groups is None else [mega_batch.groups]
    guard = make_guard(
        embeddings, runtime, **options.limits(), groups=groups, usual=mega_batch.usual,
        reference=reference,
    )  # fmt: skip
    lists: list[Int64Array] = []
    if isinstance(embeddings, Embeddings) and mega_batch.start is None:
        lists = neighbor_lists(
            embeddings, options.neighbors, runtime, similarity=options.similarity, guard=guard
        )
    objective = make_objective(
        embeddings,
        runtime,
        similarity=options.similarity,
        temperature=options.temperature,
        guard=guard,
        penalty=options.guard_penalty,
        kinds=mega_batch.kinds,
    )
    if objective.lists is None:
        graph = neighbor_graph(lists, mega_batch.start, objective, options, runtime)
    else:
        graph = listed_affinity(
            objective.lists, runtime, neighbors=options.neighbors, batch_size=options.rows_apart,
            temperature=options.temperature, ceilings=guard.ceilings,
        )  # fmt: skip
    del lists  # as large as the graph, which may wait
    rows = yield from _first_batches(graph, mega_batch, runtime.seed)
    offsets = np.append(0, np.cumsum(mega_batch.sizes))
    passes = Passes(most=options.refine or 0)
    refined = refine_rows(rows, offsets, objective, graph, runtime, passes)
    rows, broken = _with_tail(refined.rows, mega_batch), None
    if guard.active:
        offsets = np.append(0, np.cumsum(mega_batch.batch_sizes))
        rows, broken = repair_rows(rows, offsets, objective, runtime)
    kind = arithmetic(runtime.torch_device())
    return Planned(rows, Outcome(refined.passes, refined.gain, broken, kind))


def _first_batches(
    graph: Affinity, mega_batch: MegaBatch, seed: int
) -> Generator[Cutting, Int64Array, Int64Array]:
    """The rows of all batches, one after the other, before any swap: those of the plan to start
    from, or parts of the graph of exactly the sizes of the batches."""
    sizes = mega_batch.sizes
    if mega_batch.start is not None:
        parts = np.empty(graph.num_rows, np.int64)
        parts[mega_batch.start] = np.repeat(np.arange(len(sizes)), sizes)
    elif len(sizes) > 1:
        arrays = graph.indptr, graph.indices, graph.weights
        parts = sized_parts(graph, (yield Cutting(arrays, len(sizes), seed)), sizes)
    else:
        parts = np.zeros(graph.num_rows, np.int64)
    if mega_batch.kinds is not None:
        parts = fit_sizes(graph, parts, mega_batch.kinds, shares_of(mega_batch.kinds, sizes))
    return np.argsort(parts, kind="stable")


def _with_tail(rows: Int64Array, mega_batch: MegaBatch) -> Int64Array:
    """The rows batch after batch, the last ones for a batch that is to be full."""
    sizes = mega_batch.batch_sizes
    if sizes.sum() <= len(rows):
        return rows[: sizes.sum()]
    return np.concatenate([rows[: sizes[:-1].sum()], rows[-sizes[-1] :]])
