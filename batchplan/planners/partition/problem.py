"""What `partition` is asked to solve: which rows may share a batch, and how batches are made up."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.labels import source_codes
from batchplan.errors import InputError
from batchplan.guard.guard import Guard, guard_of
from batchplan.planners.partition.layout import Layout, MegaBatch, make_layout
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.metadata import rows_digest
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step, share_offsets
from batchplan.runtime import Runtime

Int64Array = NDArray[np.int64]

_LAYOUT = 7  # the generator stream of random rows, clusters that share a batch, and mega-batches


@dataclass(frozen=True, eq=False)
class Problem:
    """The data, the settings, and what follows from them before any loss is looked at.

    Attributes:
        embeddings, options, runtime: as the planner gets them.
        start: int64 (N,), all rows in the order of the plan to start from; None without one.
        start_digest: of the rows of that plan, as it is stored.
        guard: rows that must not share a batch.
        sources: int64 (N,), the source of each row from 0 on; None where they do not matter.
        kinds: the sources, where every unit has its share of each; else None.
        layouts: the batches of all rows; or, where every batch has one source, of each source.
    """

    embeddings: Embeddings
    options: PartitionOptions
    runtime: Runtime
    start: Int64Array | None
    start_digest: str | None
    guard: Guard
    sources: Int64Array | None
    kinds: Int64Array | None
    layouts: tuple[Layout, ...]

    @property
    def mega_batches(self) -> list[MegaBatch]:
        """Those of all layouts."""
        return [part for layout in self.layouts for part in layout.mega_batches]


def make_problem(embeddings: Embeddings, options: PartitionOptions, runtime: Runtime) -> Problem:
    """Read what the options name, and lay out the batches.

    Raises:
        InputError: no such column, a plan to start from of another number of rows, or a zero row
            under cosine.
    """
    start, digest = _start(options.from_plan, embeddings.num_rows)
    guard = guard_of(embeddings, options, runtime)
    sources = source_codes(options.source_column, embeddings, options.label_table)
    kinds = sources if options.source_mix == "proportional" else None
    if sources is None or kinds is not None:
        groups = [np.arange(embeddings.num_rows)]
    else:
        groups = [np.flatnonzero(sources == source) for source in range(int(sources.max()) + 1)]
    generator = runtime.generator(_LAYOUT)
    layouts = tuple(
        make_layout(
            rows,
            _batch_sizes(len(rows), options, alone=len(groups) == 1),
            generator,
            cluster_size=options.cluster_size,
            random_fraction=options.random_fraction,
            mega_batches=options.mega_batches or 1,
            kinds=kinds,
        )
        for rows in groups
    )
    return Problem(embeddings, options, runtime, start, digest, guard, sources, kinds, layouts)


def _start(path: str | None, num_rows: int) -> tuple[Int64Array | None, str | None]:
    """All rows in the order of a plan, full batches first, then those that it lacks; and a digest
    of its rows. The data may have been embedded again since, so fingerprints may differ."""
    if path is None:
        return None, None
    plan = Plan.load(path)
    try:
        plan.require_match(num_rows, None)
    except InputError as error:
        raise InputError(f"from {path}: {error}") from error
    sizes = np.diff(plan.batch_offsets)
    rows = plan.rows[np.argsort(np.repeat(-sizes, sizes), kind="stable")]
    first = np.sort(np.unique(rows, return_index=True)[1])
    missing = np.setdiff1d(np.arange(num_rows), rows)
    return np.concatenate([rows[first], missing]), rows_digest(plan.rows)


def _batch_sizes(num_rows: int, options: PartitionOptions, *, alone: bool) -> Int64Array:
    """How many rows each batch gets, falling. Where all rows are laid out together, ``alone``, the
    plan is cut in steps, of which the last has near-equal batches."""
    size = options.rows_per_batch
    at_once = batches_per_step(options.world_size, options.scope)
    if alone and options.tail == "keep":
        left = num_rows % (size * at_once)
        last = np.diff(share_offsets(left, at_once))
    else:
        left = num_rows % size
        last = np.array([left])
    return np.concatenate([np.full((num_rows - left) // size, size), last[last > 0]])
