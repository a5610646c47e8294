"""The steps of `partition`, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.graph.affinity import Affinity, affinity_graph, neighbor_lists
from batchplan.graph.multilevel import fit_sizes, partition_graph
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.graph.probing import probed_neighbors
from batchplan.guard.guard import Guard
from batchplan.planners.common.cut import SHUFFLE, cut, from_batches
from batchplan.planners.partition.layout import Layout, MegaBatch, interleaved, make_layout
from batchplan.plans import Plan
from batchplan.plans.metadata import rows_digest
from batchplan.plans.steps import batches_per_step, share_offsets
from batchplan.runtime import Runtime

if TYPE_CHECKING:
    from batchplan.planners.partition.planner import PartitionOptions
    from batchplan.refinement import Objective

Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]

_LAYOUT = 7  # the generator stream of random rows, clusters that share a batch, and mega-batches


def order_of(path: str | None, num_rows: int) -> tuple[Int64Array | None, str | None]:
    """All rows in the order of a plan, full batches first, then those that it lacks; and a digest
    of its rows, which is stored.

    The data may have been embedded again since, so that fingerprints may differ.
    """
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


def groups_of(
    num_rows: int, options: PartitionOptions, sources: Int64Array | None
) -> list[Int64Array]:
    """The rows of which batches are made, in rising order: all, or those of each source."""
    if sources is None or options.source_mix == "proportional":
        return [np.arange(num_rows)]
    return [np.flatnonzero(sources == one) for one in range(int(sources.max()) + 1)]


def neighbors_of(
    embeddings: Embeddings,
    layouts: list[Layout],
    options: PartitionOptions,
    guard: Guard,
    runtime: Runtime,
) -> tuple[list[Int64Array], Float32Array | None]:
    """Lists of neighbours (N, k), -1 for none, within the mega-batches; and the window of
    similarities that the rank window stands for, float32 (2, N), None without one. A plan to start
    from has its batches already and needs no lists, unless ranks are asked for."""
    if options.from_plan is not None and options.rank_window is None:
        return [], None
    # Before mega-batches give rows other numbers than those that the user knows.
    embeddings.require_similarities(options.similarity)
    skipped, taken = options.window()
    count = 1 if options.rank_window or not embeddings.paired else 2
    lists = [np.full((embeddings.num_rows, taken), -1, np.int64) for _ in range(count)]
    window = None
    if options.rank_window:
        window = np.tile(np.array([[np.inf], [-np.inf]], np.float32), embeddings.num_rows)
    for rows in (one.rows for layout in layouts for one in layout.mega_batches):
        if len(rows) < 2:
            continue
        all_rows = len(rows) == embeddings.num_rows
        part = embeddings if all_rows else _subset(embeddings, rows)
        own = guard if all_rows else guard.among(rows)
        if window is None:
            found = neighbor_lists(part, taken, runtime, similarity=options.similarity, guard=own)
        else:
            ranked = nearest_neighbors(
                part, min(skipped + taken, len(rows) - 1), runtime,
                similarity=options.similarity, guard=own,
            )  # fmt: skip
            found = [ranked.indices[:, skipped:]]
            window[:, rows] = _window(ranked.similarities, skipped)
        for whole, one in zip(lists, found, strict=True):
            whole[rows, : one.shape[1]] = np.where(one >= 0, rows[one], -1)
    return lists, window


def _window(similarities: Float32Array, skipped: int) -> Float32Array:
    """(2, n): the similarity of the last neighbour that counts, and of the last that does not as it
    is too near; a row with too few neighbours has none that counts."""
    if skipped >= similarities.shape[1]:
        return np.tile(np.array([[np.inf], [-np.inf]], np.float32), len(similarities))
    too_near = similarities[:, skipped - 1] if skipped else np.full(len(similarities), np.inf)
    least = np.where(np.isfinite(similarities), similarities, np.inf).min(axis=1)
    return np.stack([least, too_near]).astype(np.float32)


def _subset(embeddings: Embeddings, rows: Int64Array) -> Embeddings:
    x = embeddings.x.take(rows)
    return Embeddings.from_arrays(x, embeddings.y.take(rows) if embeddings.paired else None)


def layouts_of(
    groups: list[Int64Array],
    options: PartitionOptions,
    sources: Int64Array | None,
    runtime: Runtime,
) -> list[Layout]:
    """The batches of each group of rows."""
    generator = runtime.generator(_LAYOUT)
    kinds = sources if options.source_mix == "proportional" else None
    return [
        make_layout(
            rows, _batch_sizes(len(rows), options, len(groups) == 1), generator,
            cluster_size=options.cluster_size, random_fraction=options.random_fraction,
            mega_batches=options.mega_batches or 1, kinds=kinds,
        )
        for rows in groups
    ]  # fmt: skip


def _batch_sizes(num_rows: int, options: PartitionOptions, whole: bool) -> Int64Array:
    """How many rows each batch gets, falling; ``whole`` where the plan will be cut in steps, of
    which the last has near-equal batches."""
    size = options.rows_per_batch
    at_once = batches_per_step(options.world_size, options.scope)
    if whole and options.tail == "keep":
        left = num_rows % (size * at_once)
        last = np.diff(share_offsets(left, at_once))
    else:
        left = num_rows % size
        last = np.array([left])
    return np.concatenate([np.full((num_rows - left) // size, size), last[last > 0]])


def affinity_of(
    lists: list[Int64Array],
    start: Int64Array | None,
    objective: Objective,
    options: PartitionOptions,
    runtime: Runtime,
) -> Affinity:
    """The graph of the lists of neighbours; with none, of those that the batches of the plan to
    start from lead to."""
    size = options.unit_size()
    if start is not None and not lists:
        offsets = np.append(np.arange(0, len(start), size), len(start))
        lists = [
            probed_neighbors(
                objective.x, objective.y, start, offsets, options.neighbors, objective.guard,
                runtime,
            )
        ]  # fmt: skip
    return affinity_graph(
        lists, objective.x, objective.y, runtime, batch_size=size,
        temperature=options.temperature,
    )  # fmt: skip


def unit_rows(
    affinity: Affinity,
    layouts: list[Layout],
    options: PartitionOptions,
    sources: Int64Array | None,
    start: Int64Array | None,
    runtime: Runtime,
) -> tuple[Int64Array, Int64Array]:
    """The rows of all units, one after the other, and where each begins."""
    kinds = sources if options.source_mix == "proportional" else None
    with runtime.stage("partition", affinity.num_rows) as advance:
        units = []
        for one in (one for layout in layouts for one in layout.mega_batches):
            units.append(_partitioned(affinity, one, kinds, start, runtime.seed))
            advance(len(one.rows))
    sizes = np.concatenate([one.units for one in layouts])
    return np.concatenate(units), np.append(0, np.cumsum(sizes))


def _partitioned(
    affinity: Affinity,
    mega_batch: MegaBatch,
    kinds: Int64Array | None,
    start: Int64Array | None,
    seed: int,
) -> Int64Array:
    rows, units = mega_batch.rows, mega_batch.units
    if not len(rows):
        return rows
    part = affinity if len(rows) == affinity.num_rows else affinity.among(rows)
    if start is None:
        parts = partition_graph(part, units, seed)
    else:
        place = np.empty(affinity.num_rows, np.int64)
        place[start] = np.arange(len(start))
        parts = np.empty(len(rows), np.int64)
        parts[np.argsort(place[rows])] = np.repeat(np.arange(len(units)), units)
    if kinds is not None:
        parts = fit_sizes(part, parts, kinds[rows], mega_batch.quotas)
    return rows[np.argsort(parts, kind="stable")]


def batch_rows(
    rows: Int64Array, layouts: list[Layout], options: PartitionOptions, runtime: Runtime
) -> tuple[Int64Array, Int64Array]:
    """The rows of all batches, one after the other, and where each begins, given those of all
    units. The batches of several sources take turns, and each source has a tail of its own."""
    shuffle = runtime.generator(SHUFFLE) if options.batch_order == "shuffled" else None
    groups = []
    begin = 0
    for one in layouts:
        members, labels = one.compose(rows[begin : begin + one.num_rows])
        begin += one.num_rows
        if len(layouts) > 1:
            members, labels = _with_tail(members, labels, options)
            labels = _mixed(labels, options.rows_per_batch, shuffle)
        groups.append((members, labels))
    counts = [int(labels.max(initial=-1)) + 1 for _, labels in groups]
    number = np.empty(sum(counts), np.int64)
    number[interleaved(counts)] = np.arange(len(number))
    firsts = np.cumsum(counts) - counts
    labels = number[np.concatenate([own + at for (_, own), at in zip(groups, firsts, strict=True)])]
    order = np.argsort(labels, kind="stable")
    return np.concatenate([own for own, _ in groups])[order], np.append(
        0, np.cumsum(np.bincount(labels))
    )


def _with_tail(
    members: Int64Array, labels: Int64Array, options: PartitionOptions
) -> tuple[Int64Array, Int64Array]:
    """The rows of a source and the batch of each, batch after batch, with its short batch left out
    or made full."""
    size = options.rows_per_batch
    left = len(members) % size
    if options.tail == "keep" or not left:
        return members, labels
    whole = len(members) - left
    if options.tail == "drop":
        return members[:whole], labels[:whole]
    if not whole:
        raise InputError(
            f"tail: got pad, but a source has {left} rows, expected at least {size} to fill a "
            "batch; use --tail keep or drop, or --source-mix proportional"
        )
    rows = np.concatenate([members[:whole], members[-size:]])
    return rows, np.repeat(np.arange(len(rows) // size), size)


def _mixed(labels: Int64Array, size: int, shuffle: np.random.Generator | None) -> Int64Array:
    """The batch of each row, full batches in random order, if there is one."""
    if shuffle is None or not len(labels):
        return labels
    order = np.arange(labels.max() + 1)
    full = len(labels) // size
    order[:full] = shuffle.permutation(full)
    mixed: Int64Array = order[labels]
    return mixed


def plan_of(
    rows: Int64Array,
    offsets: Int64Array,
    layouts: list[Layout],
    embeddings: Embeddings,
    options: PartitionOptions,
    runtime: Runtime,
) -> Plan:
    """Cut the rows of all batches, or take the batches of several sources as they are."""
    if len(layouts) == 1:
        return cut(rows, "partition", embeddings, options, runtime)
    count = len(offsets) - 1
    at_once = batches_per_step(options.world_size, options.scope)
    if not count:
        raise InputError(
            f"tail: got drop, but no source has {options.rows_per_batch} rows to fill a batch; use "
            "--tail keep, smaller batches, or --source-mix proportional"
        )
    if options.tail == "keep" and count % at_once:
        raise InputError(
            f"world size: got {at_once} devices for the {count} batches of all sources, expected a "
            "divisor, or --tail drop or pad, which make whole steps"
        )
    return from_batches(rows, offsets, "partition", embeddings, options, runtime)
