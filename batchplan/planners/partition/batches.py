"""From the rows of units to the batches of a plan."""

from typing import Any

import numpy as np

from batchplan.errors import InputError
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.finish import SHUFFLE
from batchplan.planners.partition.layout import interleaved
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.partition.problem import Int64Array, Problem
from batchplan.plans.steps import batches_per_step


def compose(problem: Problem, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The rows of all batches, one after the other, and where each begins, given those of all
    units. The batches of several sources take turns, and each source has a tail of its own."""
    layouts, options = problem.layouts, problem.options
    shuffle = problem.runtime.generator(SHUFFLE) if options.batch_order == "shuffled" else None
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


def draft_of(
    problem: Problem, rows: Int64Array, offsets: Int64Array, facts: dict[str, Any]
) -> Draft:
    """An order of the rows to cut, or the batches of several sources as they are."""
    options = problem.options
    stored = {"from_plan": problem.start_digest}
    if len(problem.layouts) == 1:
        return Draft(rows=rows, refined=True, facts=facts, stored=stored)
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
    return Draft(rows=rows, offsets=offsets, refined=True, facts=facts, stored=stored)
