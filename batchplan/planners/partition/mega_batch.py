"""A mega-batch: the unit of work, which gives the same bytes in any process.

Steps: neighbours -> graph -> parts -> swaps -> repair. The result depends only on the vectors of
the rows, the `MegaBatch`, the options and the seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from batchplan.data import Data, Embeddings
from batchplan.data.answers import Answers
from batchplan.graph.affinity import Affinity, neighbor_lists
from batchplan.graph.parts import parts_of
from batchplan.graph.screen import arithmetic
from batchplan.graph.sizes import fit_sizes
from batchplan.guard.guard import Guard, make_guard
from batchplan.options import Tail
from batchplan.planners.partition.dealing import shares_of
from batchplan.planners.partition.options import PartitionOptions
from batchplan.refinement.objective import Objective, make_objective, swap_graph
from batchplan.refinement.passes import refine_rows
from batchplan.refinement.repair import count_broken, repair_rows
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array


@dataclass(frozen=True, eq=False)
class MegaBatch:
    """Rows that are planned together, with their groups, sources and batch sizes.

    Attributes:
        rows: int64 (n,), row numbers in the data, rising.
        sizes: int64 (P,), rows of each batch, falling; their sum is n.
        tail: what becomes of a short last batch: ``keep``, ``drop``, or ``pad`` with the rows
            before it.
        groups: int64 (n,) each: rows of the same code must be in different batches; -1 is no code.
        usual: the usual positive of all rows of the data, see `make_guard`.
        kinds: int64 (n,), the source of each row, from 0, if every batch gets its share of each
            source; else None.
        answers: known answers among the rows; None without a guard.
    """

    rows: Int64Array
    sizes: Int64Array
    tail: Tail = "keep"
    groups: list[Int64Array] = field(default_factory=list)
    usual: float | None = None
    kinds: Int64Array | None = None
    answers: Answers | None = None

    @property
    def batch_sizes(self) -> Int64Array:
        """int64 (batches,): rows of each batch after ``tail`` is applied."""
        if self.tail == "keep" or self.sizes[-1] == self.sizes[0]:
            return self.sizes
        return self.sizes[:-1] if self.tail == "drop" else np.full_like(self.sizes, self.sizes[0])


class MegaBatchOutcome(NamedTuple):
    """Facts about a planned mega-batch.

    Attributes:
        passes: number of passes of swaps.
        gain: the rise of the sum of the losses of all rows, in both directions, in nats.
        broken: number of pairs that still break the guard; None without a guard.
        arithmetic: the kind of processor, on which the last digits of sums depend.
    """

    passes: int
    gain: float
    broken: int | None
    arithmetic: str


class Planned(NamedTuple):
    """The batches of a mega-batch.

    Attributes:
        order: int64 (entries,), its rows, numbered from 0, batch after batch.
        outcome: facts about them.
    """

    order: Int64Array
    outcome: MegaBatchOutcome


@dataclass(frozen=True, eq=False)
class Prepared:
    """A mega-batch, and what its batches are made from.

    Attributes:
        mega_batch: the rows.
        options: refinement and batches.
        objective: what swaps raise.
        graph: which rows should share a batch.
    """

    mega_batch: MegaBatch
    options: PartitionOptions
    objective: Objective
    graph: Affinity

    def first_batches(self, runtime: Runtime) -> Int64Array:
        """The rows of all batches before any swap, int64 (n,): parts of the graph of exactly the
        sizes of the batches. It takes one thread."""
        graph, sizes, kinds = self.graph, self.mega_batch.sizes, self.mega_batch.kinds
        parts = np.zeros(graph.num_rows, np.int64)
        if len(sizes) > 1:
            parts = parts_of(graph, sizes, runtime)
        if kinds is not None:
            parts = fit_sizes(graph, parts, kinds, shares_of(kinds, sizes))
        return np.argsort(parts, kind="stable")

    def planned(self, runtime: Runtime, cut: Callable[[], Int64Array] | None = None) -> Planned:
        """The batches after passes of swaps and the repair of what breaks the guard.

        ``cut`` returns the `first_batches`, if they are made on another thread.
        """
        mega_batch, objective = self.mega_batch, self.objective
        with runtime.stage("partition"):
            rows = cut() if cut else self.first_batches(runtime)
        offsets = np.append(0, np.cumsum(mega_batch.sizes))
        found = refine_rows(rows, offsets, objective, self.graph, runtime, self.options.refine)
        rows, broken = _with_tail(found.rows, mega_batch), None
        if objective.guard.active:
            offsets = np.append(0, np.cumsum(mega_batch.batch_sizes))
            rows, broken = repair_rows(rows, offsets, objective, runtime)
        kind = arithmetic(runtime.torch_device())
        return Planned(rows, MegaBatchOutcome(found.passes, found.gain, broken, kind))


def prepare(
    embeddings: Data,
    mega_batch: MegaBatch,
    options: PartitionOptions,
    runtime: Runtime,
    reference: Embeddings | None = None,
) -> Prepared:
    """Make what the batches of a mega-batch need.

    Args:
        embeddings: of its n rows alone, see `Embeddings.take`: n^2 d multiply-adds for the
            neighbours (half with one matrix), then O(n (k + B) d) a pass; or lists, see
            `Candidates.take`, without that search.
        mega_batch: the rows.
        options: graph, guard, refinement and batches. Options of sources have no effect here.
        runtime: device, memory budget, seed, progress.
        reference: of the same n rows, if the guard has one.

    Raises:
        InputError: a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    guard = _guard_of(embeddings, mega_batch, options, runtime, reference)
    lists: list[Int64Array] = []
    if isinstance(embeddings, Embeddings):
        lists = neighbor_lists(
            embeddings, options.neighbors, runtime, similarity=options.similarity, guard=guard
        )
    objective = _objective_of(embeddings, guard, mega_batch, options, runtime)
    graph = swap_graph(
        objective, lists, runtime, neighbors=options.neighbors, batch_size=options.rows_per_batch
    )
    return Prepared(mega_batch, options, objective, graph)


def _guard_of(
    embeddings: Data,
    mega_batch: MegaBatch,
    options: PartitionOptions,
    runtime: Runtime,
    reference: Embeddings | None,
) -> Guard:
    return make_guard(
        embeddings, runtime, **options.limits(), groups=mega_batch.groups,
        answers=mega_batch.answers, usual=mega_batch.usual, reference=reference,
    )  # fmt: skip


def _objective_of(
    embeddings: Data,
    guard: Guard,
    mega_batch: MegaBatch,
    options: PartitionOptions,
    runtime: Runtime,
) -> Objective:
    return make_objective(
        embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
        guard=guard, penalty=options.guard_penalty, kinds=mega_batch.kinds,
    )  # fmt: skip


def broken_pairs(
    embeddings: Data,
    mega_batch: MegaBatch,
    order: Int64Array,
    options: PartitionOptions,
    runtime: Runtime,
    reference: Embeddings | None = None,
) -> int:
    """The number of pairs that break the guard in the batches of a mega-batch.

    Args:
        order: int64 (n,), its rows, numbered from 0, batch after batch.
        embeddings, mega_batch, options, runtime, reference: as of `prepare`.
    """
    guard = _guard_of(embeddings, mega_batch, options, runtime, reference)
    objective = _objective_of(embeddings, guard, mega_batch, options, runtime)
    return count_broken(order, np.append(0, np.cumsum(mega_batch.sizes)), objective)


def _with_tail(rows: Int64Array, mega_batch: MegaBatch) -> Int64Array:
    """The rows, batch after batch, without a dropped tail, or with a padded one: a last batch that
    must be full gets the last rows."""
    sizes = mega_batch.batch_sizes
    if sizes.sum() <= len(rows):
        return rows[: sizes.sum()]
    return np.concatenate([rows[: sizes[:-1].sum()], rows[-sizes[-1] :]])
