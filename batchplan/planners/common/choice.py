"""The rules by which `batchplan plan` chooses a planner, its mega-batches and its guard.

docs/planners.md#plan gives them with what was measured. Each looks at the number of rows, at the
memory that is left, or at what `inspect` tells of the embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from batchplan.data.candidates import Candidates, Data
from batchplan.data.embeddings import Embeddings
from batchplan.guard.describe import Description, describe
from batchplan.options import MUCH_EXCLUDED, USUAL_MARGIN
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.partition.options import MEGA_BATCH_ROWS, PartitionOptions
from batchplan.planners.random import RandomOptions
from batchplan.runtime import CHOICE, WARNING, Runtime

# Shares of random negatives more similar than the own pair. In the runs of docs/training.md they
# were 0.019 for a trained start, where 2 mega-batches were best, and 0.121 for an untrained one,
# where 8 were.
TRAINED, UNTRAINED = 0.03, 0.1
UNRELATED = 0.4  # half of all would be by chance
SIZING = {"mega_batches", "mega_batch_rows", "from_plan"}
_GUARDING = ("guard", "relative_margin", "absolute_margin", "max_score", "guard_penalty")


def choose(
    embeddings: Data, wanted: Mapping[str, Any], runtime: Runtime
) -> tuple[str, PlannerOptions]:
    """Choose a planner and its options; each choice and its reason is a note to the observer.

    Args:
        embeddings: N pairs.
        wanted: options of `PartitionOptions` that are settled. Nothing is chosen in their place.
        runtime: the memory budget, the seed of samples, the observer.

    Returns:
        The name of the planner, and all of its options.

    Raises:
        InputError: an option out of range, or embeddings without similarities.
    """
    settled = {name: value for name, value in wanted.items() if value is not None}
    options = PartitionOptions(**settled)
    rows, n = options.rows_per_batch, embeddings.num_rows
    if isinstance(embeddings, Candidates):
        runtime.note(CHOICE, "partition, which plans from lists of candidates")
        return "partition", options
    if n < 2 * rows and not set(settled) - {field.name for field in fields(RandomOptions)}:
        why = f"{n:,} rows are less than two batches of {rows}, so there is nothing to choose"
        runtime.note(CHOICE, f"random, since {why}")
        return "random", RandomOptions(**settled)
    seen = describe(embeddings, runtime, similarity=options.similarity)
    if seen.beaten_positives > UNRELATED:
        runtime.note(
            WARNING,
            f"{seen.beaten_positives:.0%} of random negatives are more similar than the own pair; "
            "check that row i of one side belongs to row i of the other",
        )
    runtime.note(CHOICE, "partition, whose plans trained the best models (docs/training.md)")
    if not SIZING & set(settled):
        settled["mega_batches"] = _count(embeddings, seen, options, runtime)
    if not set(_GUARDING) & set(settled):
        guard, why = _guard(seen)
        settled |= guard
        runtime.note(CHOICE, why)
    return "partition", PartitionOptions(**settled)


def with_mega_batches(
    embeddings: Embeddings, options: PartitionOptions, runtime: Runtime
) -> PartitionOptions:
    """The options, with a number of mega-batches if that is ``auto``: the one that `choose` takes,
    or as many as keep each at ``mega_batch_rows``."""
    if options.mega_batches != "auto":
        return options
    count = count_mega_batches(embeddings, options, runtime)
    return replace(options, mega_batches=count, mega_batch_rows=None)


def count_mega_batches(embeddings: Embeddings, options: PartitionOptions, runtime: Runtime) -> int:
    """How many mega-batches ``auto`` makes; the observer is told why."""
    seen = describe(embeddings, runtime, similarity=options.similarity)
    return _count(embeddings, seen, options, runtime)


def _count(
    embeddings: Embeddings, seen: Description, options: PartitionOptions, runtime: Runtime
) -> int:
    """How many mega-batches to make; the observer is told why."""
    fitting = rows_that_fit(embeddings, options, runtime)
    count, why = mega_batches(
        embeddings.num_rows, options.rows_apart, seen.beaten_positives, fitting,
        options.mega_batch_rows,
    )  # fmt: skip
    runtime.note(CHOICE, f"{count} mega-batch{'es' * (count != 1)}, since {why}")
    return count


def rows_that_fit(embeddings: Embeddings, options: PartitionOptions, runtime: Runtime) -> int:
    """Rows of the largest mega-batch that fits the memory left; docs/planners.md has its bytes."""
    held = 4 * embeddings.dim * (2 + len(embeddings.negatives)) + 280 * options.neighbors
    return max(1, (runtime.memory_left() - 32 * embeddings.num_rows) // held)


def mega_batches(
    num_rows: int, rows_per_batch: int, beaten: float, fitting: int, allowed: int | None = None
) -> tuple[int, str]:
    """How many mega-batches to make, and why.

    Args:
        num_rows: N.
        rows_per_batch: rows that are contrasted together; each mega-batch has two batches.
        beaten: `Description.beaten_positives`.
        fitting: rows of a mega-batch that fit the memory.
        allowed: rows of a mega-batch at most, in place of `MEGA_BATCH_ROWS`.
    """
    share = f"{beaten:.1%} of random negatives are more similar than the own pair"
    count, why = 4, f"{share}: neither as before training nor as after it"
    if beaten <= TRAINED:
        count, why = 2, f"{share}, as after training"
    elif beaten >= UNTRAINED:
        count, why = 8, f"{share}, as before training"
    of_time = MEGA_BATCH_ROWS, "would take too much time"
    if allowed is not None:
        of_time = allowed, "are not allowed (--mega-batch-rows)"
    for largest, limit in (of_time, (fitting, "would take too much memory")):
        if (least := -(-num_rows // largest)) > count:
            count, why = least, f"more than {largest:,} rows each {limit}"
    if count > (most := max(1, num_rows // (2 * rows_per_batch))):
        count, why = most, "each needs two batches"
    return count, why


def _guard(seen: Description) -> tuple[dict[str, Any], str]:
    """Options of the guard, and why."""
    (kept,) = (effect.kept_away for effect in seen.guards if effect.relative_margin == USUAL_MARGIN)
    share = kept / seen.num_rows
    rows = f"{kept:,.0f} rows ({share:.1%})"
    if share > MUCH_EXCLUDED:
        return {"guard": False}, f"no guard, since one would keep {rows} apart from each row"
    return {"relative_margin": USUAL_MARGIN}, (
        f"a guard at {1 - USUAL_MARGIN:.0%} of the own pair's similarity (or the median's, if "
        f"higher), which keeps {rows} apart from each row"
    )
