"""Batches as parts of a graph: a balanced partition that raises the training loss itself.

The loss that a batch shows is a sum of log sum_j exp(s_ij / tau), so the batches that show the most
are a partition of the rows that maximises it. A graph of nearest neighbours, whose edges weigh what
they do to the loss, is partitioned into parts of exactly the batch size by a multilevel method.
Then passes of swaps between batches raise the loss itself. Rank windows and clusters within batches
are those of B3 (Thirukovalluru et al., "Breaking the Batch Barrier (B3) of Contrastive Learning via
Smart Batch Mining", 2025). Mega-batches, random parts of the rows out of which hard negatives are
chosen, are those of Wieting and Gimpel ("ParaNMT-50M: Pushing the Limits of Paraphrastic Sentence
Embeddings with Millions of Machine Translations", ACL 2018).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from batchplan.errors import InputError
from batchplan.guard.options import GuardOptions, guard_of
from batchplan.options import option
from batchplan.planners.common.options import BatchOrder, PlannerOptions
from batchplan.planners.common.refine import PassOptions
from batchplan.refinement.options import NEIGHBORS

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class PartitionOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `partition`.

    Raises:
        InputError: as its bases; a number or a window out of its range, or options that exclude
            each other.
    """

    batch_order: BatchOrder = option(
        "shuffled", "Order of the batches; planned: those of similar rows follow each other."
    )
    max_similarity: float | None = option(
        0.9, "Keep rows apart that are as similar as this share of either's own pair."
    )
    guard_price: float | None = option(
        0.2, "Nats of loss that it may cost to keep apart two rows that are too similar; inf: any."
    )
    refine: int | None = option(  # type: ignore[assignment]
        None,
        "Passes of swaps between batches that raise the training loss.  [default: 4, or 1 with "
        "--from]",
    )
    neighbors: int = option(NEIGHBORS, "Nearest neighbours of a row that become its edges.")
    rank_window: str | None = option(
        None, "p:m leaves out the p nearest of each row and takes the next m instead (B3)."
    )
    cluster_size: int | None = option(
        None, "Rows of a cluster: batches are made of several, dealt at random (B3)."
    )
    random_fraction: float = option(0.0, "Share of each batch that is drawn at random; 0 to 1.")
    mega_batches: int | None = option(
        None,
        "Random parts of the rows, drawn by --seed, each partitioned alone: more are milder and "
        "faster.  [default: 2, or 1 with --from]",
    )
    source_column: str | None = option(
        None, "Parquet column of sources, such as data sets: see --source-mix.", kind="column"
    )
    source_mix: Literal["one", "proportional"] = option(
        "one", "Every batch from one source, or every batch with its share of each."
    )
    from_plan: str | None = option(
        None, "Start from the batches of this plan, as of the last epoch.", "--from", kind="path"
    )

    def __post_init__(self) -> None:
        if self.refine is None:
            object.__setattr__(self, "refine", 4 if self.from_plan is None else 1)
        if self.mega_batches is None:
            object.__setattr__(self, "mega_batches", 2 if self.from_plan is None else 1)
        super().__post_init__()
        if self.mega_batches is not None and self.mega_batches < 1:
            raise InputError(f"mega-batches: got {self.mega_batches}, expected at least 1")
        if self.mega_batches != 1 and self.from_plan is not None:
            raise InputError(
                f"mega-batches: got {self.mega_batches} with --from, whose batches have rows of "
                "all; leave out one of the two"
            )
        if self.neighbors < 1:
            raise InputError(f"neighbors: got {self.neighbors}, expected at least 1")
        if not 0 <= self.random_fraction <= 1:
            raise InputError(
                f"random fraction: got {self.random_fraction}, expected from 0 to 1 "
                "(0.5: half of each batch is random)"
            )
        self.window()
        left = self.rows_per_batch - round(self.random_fraction * self.rows_per_batch)
        if self.cluster_size is not None and not (
            2 <= self.cluster_size <= left and left % self.cluster_size == 0
        ):
            raise InputError(
                f"cluster size: got {self.cluster_size}, expected at least 2 and a divisor of the "
                f"{left} rows of a batch that are not random"
            )
        if self.source_mix == "proportional":
            if self.source_column is None:
                raise InputError("source mix: got proportional without --source-column; name one")
            if self.random_fraction:
                raise InputError(
                    "source mix: got proportional with a --random-fraction, whose rows come from "
                    "any source; leave out one of the two"
                )

    def window(self) -> tuple[int, int]:
        """Nearest neighbours that are left out, and how many are taken after them.

        Raises:
            InputError: ``rank_window`` is not two numbers with a colon between.
        """
        if self.rank_window is None:
            return 0, self.neighbors
        parts = self.rank_window.split(":")
        if len(parts) == 2 and all(part.isascii() and part.isdigit() for part in parts):
            skipped, taken = map(int, parts)
            if taken >= 1:
                return skipped, taken
        raise InputError(
            f"rank window: got {self.rank_window!r}, expected two whole numbers as in 30:100: the "
            "nearest rows that are left out, and how many are taken after them, at least 1"
        )

    def columns(self) -> tuple[str | None, ...]:
        return (*super().columns(), self.source_column)

    def unit_size(self) -> int:
        """Rows of what is partitioned: batches, their part that is not random, or clusters."""
        rows = self.rows_per_batch
        return self.cluster_size or max(2, rows - round(self.random_fraction * rows))


def partition(embeddings: Embeddings, options: PartitionOptions, runtime: Runtime) -> Plan:
    """Plan by multilevel partition and refinement.

    Args:
        embeddings: N pairs of d dimensions; 2 N^2 d multiply-adds for the neighbours (N^2 d with
            one matrix), then O(N (k + B) d) a pass, in N (8 d + 280 k) bytes for k neighbours.
        options: graph, guard, refinement, dial, sources and batches.
        runtime: device (of the neighbours), memory budget, seed, progress.

    Returns:
        A plan that partitions the rows, as far as its tail does. Its metrics are the ``passes`` of
        swaps made and by how much these raised the mean loss, in nats (``refine_gain``); and,
        where a guard is in force, how many pairs break it still (``broken_pairs``).

    Raises:
        InputError: options that do not fit the data, no such column, a plan to start from of
            another number of rows, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.data.labels import source_codes
    from batchplan.planners.partition import steps
    from batchplan.refinement import Passes, make_objective, refine_rows, repair_rows

    start, digest = steps.order_of(options.from_plan, embeddings.num_rows)
    guard = guard_of(embeddings, options, runtime)
    sources = source_codes(options.source_column, embeddings, options.label_table)
    groups = steps.groups_of(embeddings.num_rows, options, sources)
    layouts = steps.layouts_of(groups, options, sources, runtime)
    lists, window = steps.neighbors_of(embeddings, layouts, options, guard, runtime)
    objective = make_objective(
        embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
        guard=guard, price=options.guard_price, window=window, kinds=sources,
    )  # fmt: skip
    affinity = steps.affinity_of(lists, start, objective, options, runtime)
    rows, offsets = steps.unit_rows(affinity, layouts, options, sources, start, runtime)
    made = refine_rows(
        rows, offsets, objective, affinity, runtime, Passes(most=options.refine or 0)
    )
    rows, offsets = steps.batch_rows(made.rows, layouts, options, runtime)
    facts: dict[str, Any] = {
        "passes": made.passes, "refine_gain": made.gain / (2 * embeddings.num_rows)
    }  # fmt: skip
    if guard.active:
        rows, facts["broken_pairs"] = repair_rows(rows, offsets, objective, runtime)
    plan = steps.plan_of(rows, offsets, layouts, embeddings, options, runtime)
    stored = {**plan.metadata.options, "from_plan": digest}
    plan = replace(plan, metadata=replace(plan.metadata, options=stored))
    return plan.with_metrics(**facts)
