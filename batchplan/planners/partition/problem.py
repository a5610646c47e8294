"""Reads what the options of `partition` name, and deals the rows to mega-batches."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from batchplan.data import Data, Embeddings
from batchplan.data.answers import Answers
from batchplan.data.labels import source_codes
from batchplan.data.reference import load_reference, stored_reference
from batchplan.errors import InputError
from batchplan.guard.guard import group_codes, known_answers, usual_of
from batchplan.options import Tail
from batchplan.planners.partition.dealing import deal
from batchplan.planners.partition.mega_batch import MegaBatch
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.steps import batches_per_step, share_offsets
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_DEAL = 8  # the generator stream of mega-batches


@dataclass(frozen=True, eq=False)
class Problem:
    """The data, the options, and all mega-batches.

    Attributes:
        embeddings: all N rows.
        options: of `partition`.
        mega_batches: source after source, if every batch comes from one source.
        counts: number of mega-batches of each source, or of all rows together.
        one_order: whether the rows of all mega-batches, one after the other, are cut into batches;
            else batches of several sources take turns.
        groups: int64 (N,) each, codes of rows that must be in different batches.
        answers: known answers of all rows; None without a guard.
        usual: the usual positive, see `make_guard`.
        sources: int64 (N,), the source of each row, from 0; None without a column.
        reference: N rows of another model by which the guard judges; or None.
        stored: options that the plan stores with another value, as files may change.
    """

    embeddings: Data
    options: PartitionOptions
    mega_batches: list[MegaBatch]
    counts: list[int]
    one_order: bool
    groups: list[Int64Array]
    answers: Answers | None
    usual: float | None
    sources: Int64Array | None
    reference: Embeddings | None
    stored: dict[str, Any]

    def vectors(self, mega_batch: MegaBatch) -> tuple[Data, Embeddings | None]:
        """The embeddings and the reference of the rows of a mega-batch."""
        rows = mega_batch.rows
        if len(rows) == self.embeddings.num_rows:
            return self.embeddings, self.reference
        return self.embeddings.take(rows), self.reference and self.reference.take(rows)

    def mega_batch(self, rows: Int64Array, sizes: Int64Array, tail: Tail) -> MegaBatch:
        """A mega-batch of some rows, int64 (n,), rising."""
        mixed = self.options.source_mix == "proportional"
        return MegaBatch(
            rows, sizes, tail, [codes[rows] for codes in self.groups], self.usual,
            kinds=self.sources[rows] if mixed and self.sources is not None else None,
            answers=self.answers and self.answers.take(rows),
        )  # fmt: skip

    def batch_sizes(self) -> list[Int64Array]:
        """int64 (batches,) of each source: rows of its batches, falling."""
        sizes = iter([mega_batch.batch_sizes for mega_batch in self.mega_batches])
        return [np.concatenate(list(islice(sizes, count))) for count in self.counts]


def make_problem(embeddings: Data, options: PartitionOptions, runtime: Runtime) -> Problem:
    """Read what the options name, and deal the rows to mega-batches.

    Raises:
        InputError: no such column, a zero row under cosine, a tail that does not suit the sources,
            or as `load_reference`.
    """
    # Messages name rows, so check them before mega-batches number them otherwise.
    embeddings.require_similarities(options.similarity)
    reference = None
    if isinstance(embeddings, Embeddings):
        reference = load_reference(options, embeddings, runtime)
    groups = group_codes(embeddings, options.label_table, options.group_column)
    answers = known_answers(embeddings, options, runtime)
    sources = source_codes(options.source_column, embeddings, options.label_table)
    kinds = sources if options.source_mix == "proportional" else None
    members = [np.arange(embeddings.num_rows)]
    if sources is not None and kinds is None:
        members = [np.flatnonzero(sources == source) for source in range(int(sources.max()) + 1)]
    one_order = len(members) == 1
    tail: Tail = "keep" if one_order else options.tail
    usual, generator = usual_of(embeddings, options, reference), runtime.generator(_DEAL)
    problem = Problem(
        embeddings, options, [], [], one_order, groups, answers, usual, sources, reference,
        stored_reference(reference),
    )  # fmt: skip
    for of_source in members:
        sizes = _batch_sizes(len(of_source), options, tail, one_order=one_order)
        if not len(sizes):
            continue
        spread = _large_groups(groups, of_source, len(sizes)) if kinds is None else kinds
        count = options.count_for(len(of_source))
        dealt = deal(of_source, sizes, count, generator, spread)
        problem.counts.append(len(dealt))
        problem.mega_batches.extend(problem.mega_batch(*own, tail) for own in dealt)
    if not one_order:
        batches = sum(len(mega_batch.batch_sizes) for mega_batch in problem.mega_batches)
        _check_steps(batches, options)
    return problem


def _large_groups(
    groups: list[Int64Array], rows: Int64Array, num_batches: int
) -> Int64Array | None:
    """Number the groups that have more of ``rows`` than half the number of batches: int64 (N,),
    from 1, and 0 for all other rows; None if there is no such group.

    If such a group were dealt at random, a mega-batch might get more of its rows than it has
    batches.
    """
    if not groups:
        return None
    codes, counts = np.unique(groups[0][rows], return_counts=True)
    large = codes[(codes >= 0) & (counts > num_batches / 2)]
    if not len(large):
        return None
    place = np.searchsorted(large, groups[0])
    return np.where(np.append(large, -1)[place] == groups[0], place + 1, 0)


def _batch_sizes(
    num_rows: int, options: PartitionOptions, tail: Tail, *, one_order: bool
) -> Int64Array:
    """The rows of each batch of a source, falling; none if ``tail`` drops a source that
    fills no batch. In ``one_order`` the last step is shared by all devices, nearly equally."""
    size = options.rows_per_batch
    at_once = batches_per_step(options.world_size, options.scope)
    if one_order and options.tail == "keep":
        left = num_rows % (size * at_once)
        last = np.diff(share_offsets(left, at_once))
    else:
        left = num_rows % size
        last = np.array([left])
    if not one_order and num_rows < size:
        if tail == "pad":
            raise InputError(
                f"tail: got pad, but a source has {left} rows, expected at least {size} to fill a "
                "batch; use --tail keep or drop, or --source-mix proportional"
            )
        if tail == "drop":
            return np.empty(0, np.int64)
    return np.concatenate([np.full((num_rows - left) // size, size), last[last > 0]])


def _check_steps(count: int, options: PartitionOptions) -> None:
    """Require that ``count`` batches of several sources make whole steps, or a tail that makes
    them whole."""
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
