"""What `partition` is asked to solve: the mega-batches, and what is known of their rows."""

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from batchplan.data import Data, Embeddings
from batchplan.data.labels import source_codes
from batchplan.data.reference import load_reference, stored_reference
from batchplan.errors import InputError
from batchplan.guard.guard import group_codes, usual_of
from batchplan.options import Tail
from batchplan.planners.partition.dealing import deal
from batchplan.planners.partition.mega_batch import MegaBatch
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.metadata import rows_digest
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step, share_offsets
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_DEAL = 8  # the generator stream of mega-batches


@dataclass(frozen=True, eq=False)
class Problem:
    """All mega-batches.

    Attributes:
        dealt: the rows of each, those of a source one after the other.
        sources: how many mega-batches each source has, where every batch or block comes from one;
            or, if ``alone``, how many there are of all rows.
        in_blocks: int64 (N,), the source of each row, if batches are made of blocks of one source,
            which are what the mega-batches then have for batches; else None.
        alone: whether sources do not matter, so that an order of all rows is to be cut.
        groups, kinds: int64 (N,), as `MegaBatch` has them, of all rows; or None.
        place: int64 (N,), where each row is in the order of the plan to start from; or None.
        reference: N rows, by which the guard is judged; or None.
        usual: the usual positive, or None, as `MegaBatch` has it.
        stored: the options that the plan keeps otherwise than as they are, as paths may change.
    """

    dealt: list[MegaBatch]
    sources: list[int]
    in_blocks: Int64Array | None
    alone: bool
    groups: Int64Array | None
    kinds: Int64Array | None
    place: Int64Array | None
    reference: Embeddings | None
    usual: float | None
    stored: dict[str, Any]

    def mega_batch(self, number: int) -> MegaBatch:
        """A mega-batch with all that there is to know of its rows."""
        dealt = self.dealt[number]
        groups, kinds, place = (
            None if of_all is None else of_all[dealt.rows]
            for of_all in (self.groups, self.kinds, self.place)
        )
        start = None if place is None else np.argsort(place)
        return replace(dealt, groups=groups, usual=self.usual, kinds=kinds, start=start)

    def vectors(self, number: int, embeddings: Data) -> tuple[Data, Embeddings | None]:
        """The rows of a mega-batch, and those of the reference."""
        rows = self.dealt[number].rows
        if len(rows) == embeddings.num_rows:
            return embeddings, self.reference
        return embeddings.take(rows), None if self.reference is None else self.reference.take(rows)

    def batch_sizes(self) -> list[Int64Array]:
        """int64 (batches,) of each source: rows of its batches or blocks, falling."""
        sizes = iter([dealt.batch_sizes for dealt in self.dealt])
        return [np.concatenate(list(islice(sizes, count))) for count in self.sources]


def make_problem(embeddings: Data, options: PartitionOptions, runtime: Runtime) -> Problem:
    """Read what the options name, and deal the rows to mega-batches.

    Raises:
        InputError: no such column, a plan to start from of another number of rows, a
            zero row under cosine, a tail that does not suit the sources, or as `load_reference`.
    """
    # Before mega-batches give rows other numbers than those that the user knows.
    embeddings.require_similarities(options.similarity)
    reference = None
    if isinstance(embeddings, Embeddings):
        reference = load_reference(options, embeddings, runtime)
    place, digest = _start(options.from_plan, embeddings.num_rows)
    groups = group_codes(embeddings, options.label_table, options.group_column)
    sources = source_codes(options.source_column, embeddings, options.label_table)
    kinds = sources if options.source_mix == "proportional" else None
    if sources is None or kinds is not None:
        members = [np.arange(embeddings.num_rows)]
    else:
        members = [np.flatnonzero(sources == source) for source in range(int(sources.max()) + 1)]
    in_blocks = sources if options.source_mix == "blocks" else None
    alone = len(members) == 1 and in_blocks is None
    tail: Tail = options.tail if in_blocks is None and not alone else "keep"
    generator = runtime.generator(_DEAL)
    own = groups[0] if groups else None
    dealt = [
        deal(
            rows,
            sizes,
            options.count_for(len(rows)),
            generator,
            _large_groups(own, rows, len(sizes)) if kinds is None else kinds,
            tail,
        )
        for rows in members
        if len(sizes := _batch_sizes(len(rows), options, tail, alone=alone))
    ]
    problem = Problem(
        dealt=[mega_batch for of_source in dealt for mega_batch in of_source],
        sources=[len(of_source) for of_source in dealt],
        in_blocks=in_blocks,
        alone=alone,
        groups=own,
        kinds=kinds,
        place=place,
        reference=reference,
        usual=usual_of(embeddings, options, reference),
        stored={"from_plan": digest, **stored_reference(reference)},
    )
    if not alone and in_blocks is None:
        _check_steps(sum(map(len, problem.batch_sizes())), options)
    return problem


def _large_groups(
    groups: Int64Array | None, rows: Int64Array, num_batches: int
) -> Int64Array | None:
    """Number the groups with more of ``rows`` than half of the batches: int64 (N,), from 1, and 0
    for all other rows; None if no group is so large. Dealt at random, such a group might put more
    rows into a mega-batch than that has batches."""
    if groups is None:
        return None
    codes, counts = np.unique(groups[rows], return_counts=True)
    large = codes[(codes >= 0) & (counts > num_batches / 2)]
    if not len(large):
        return None
    place = np.searchsorted(large, groups)
    return np.where(np.append(large, -1)[place] == groups, place + 1, 0)


def _start(path: str | None, num_rows: int) -> tuple[Int64Array | None, str | None]:
    """Where each row is in the order of a plan, full batches first, then rows that it lacks; and a
    digest of its rows. The data may have been embedded again since, so fingerprints may differ."""
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
    place = np.empty(num_rows, np.int64)
    place[np.concatenate([rows[first], missing])] = np.arange(num_rows)
    return place, rows_digest(plan.rows)


def _batch_sizes(
    num_rows: int, options: PartitionOptions, tail: Tail, *, alone: bool
) -> Int64Array:
    """How many rows each batch or block gets, falling. Where all rows are laid out together,
    ``alone``, the plan is cut in steps, of which the last has near-equal batches."""
    size = options.rows_apart
    at_once = batches_per_step(options.world_size, options.scope)
    if alone and options.tail == "keep":
        left = num_rows % (size * at_once)
        last = np.diff(share_offsets(left, at_once))
    else:
        left = num_rows % size
        last = np.array([left])
    if not alone and num_rows < size:
        if tail == "pad":
            raise InputError(
                f"tail: got pad, but a source has {left} rows, expected at least {size} to fill a "
                "batch; use --tail keep or drop, or --source-mix proportional"
            )
        if tail == "drop":
            return np.empty(0, np.int64)
    return np.concatenate([np.full((num_rows - left) // size, size), last[last > 0]])


def _check_steps(count: int, options: PartitionOptions) -> None:
    """Require whole steps of the batches of several sources, or a tail that makes them."""
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
