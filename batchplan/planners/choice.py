"""Rules by which `batchplan plan` chooses a planner, its mega-batches and its guard.

docs/planners.md#plan lists the rules. They depend on the number of rows, on the free memory, and on
the facts that `inspect` shows.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from batchplan.data.candidates import Candidates, Data
from batchplan.data.embeddings import Embeddings
from batchplan.errors import InputError
from batchplan.expectation import forecast
from batchplan.guard.describe import Description, describe
from batchplan.options import MUCH_EXCLUDED, USUAL_MARGIN
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.partition.options import MEGA_BATCH_ROWS, MEGA_BATCHES, PartitionOptions
from batchplan.planners.random import RandomOptions
from batchplan.runtime import CHOICE, EXPECTED, WARNING, Runtime
from batchplan.text import counted

UNRELATED = 0.4  # sides that do not belong together have 0.5
SIZING = {"mega_batches", "mega_batch_rows"}
_GUARDING = ("guard", "relative_margin", "absolute_margin", "max_score", "guard_penalty")


def choose(
    embeddings: Data, wanted: Mapping[str, Any], runtime: Runtime
) -> tuple[str, PlannerOptions]:
    """Choose a planner and its options, and report each choice with its reason to the observer.

    Args:
        embeddings: N pairs, or lists of candidates.
        wanted: options of `PartitionOptions` that the user has set; these are kept.
        runtime: the memory budget, the seed of samples, the observer.

    Returns:
        The name of the planner and all its options.

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
    usual = [{"relative_margin": USUAL_MARGIN}]
    seen = describe(embeddings, runtime, similarity=options.similarity, limits=usual)
    if seen.beaten_positives > UNRELATED:
        runtime.note(
            WARNING,
            f"{seen.beaten_positives:.0%} of random negatives are more similar to a row than its "
            "own pair; check that row i of one side belongs to row i of the other",
        )
    runtime.note(CHOICE, "partition, whose plans trained the best models (docs/training.md)")
    if embeddings.paired:
        runtime.note(EXPECTED, f"{forecast(seen.beaten_positives, rows)}; see docs/law.md")
    if not SIZING & set(settled):
        settled["mega_batches"] = count_mega_batches(embeddings, options, runtime)
    if not set(_GUARDING) & set(settled):
        guard, why = _guard(seen)
        settled |= guard
        runtime.note(CHOICE, why)
    return "partition", PartitionOptions(**settled)


def settled(embeddings: Data, options: PartitionOptions, runtime: Runtime) -> PartitionOptions:
    """Return the options of `partition` with a number of mega-batches in place of ``auto``.

    Lists of candidates get two mega-batches unless a number is set: without a search for
    neighbours, larger mega-batches take no more time per row.

    Raises:
        InputError: an option that needs vectors, given with lists; or as `choose`.
    """
    auto = options.mega_batches == "auto"
    if isinstance(embeddings, Candidates):
        needing = {"reference": options.reference, "ray": options.ray, "mega-batches": auto}
        if given := [name for name, value in needing.items() if value]:
            raise InputError(
                f"{given[0]}: given with candidates, but it needs vectors; leave it out, or plan "
                "from embeddings"
            )
        chosen = options.mega_batches or options.mega_batch_rows
        return options if chosen else replace(options, mega_batches=MEGA_BATCHES)
    if not auto:
        return options
    count = count_mega_batches(embeddings, options, runtime)
    return replace(options, mega_batches=count, mega_batch_rows=None)


def count_mega_batches(embeddings: Embeddings, options: PartitionOptions, runtime: Runtime) -> int:
    """Return the number of mega-batches that ``auto`` makes, and report its reason to the
    observer."""
    # Bytes per row of a mega-batch, as `partition` says.
    row = 4 * embeddings.dim * (2 + len(embeddings.negatives)) + 280 * options.neighbors
    fitting = max(1, (runtime.memory_left() - 32 * embeddings.num_rows) // row)
    count, why = mega_batches(
        embeddings.num_rows, options.rows_per_batch, fitting, options.mega_batch_rows
    )
    runtime.note(CHOICE, f"{count} mega-batch{'es' * (count != 1)}, since {why}")
    return count


def mega_batches(
    num_rows: int, rows_per_batch: int, fitting: int, allowed: int | None = None
) -> tuple[int, str]:
    """Return the number of mega-batches to make, and the reason.

    Args:
        num_rows: N.
        rows_per_batch: rows of a batch; each mega-batch has at least two batches.
        fitting: rows of the largest mega-batch that fits into memory.
        allowed: largest number of rows of a mega-batch; None for `MEGA_BATCH_ROWS`.
    """
    count, why = MEGA_BATCHES, "models gained less from more (docs/law.md)"
    most_rows = MEGA_BATCH_ROWS, "would take too much time"
    if allowed is not None:
        most_rows = allowed, "are not allowed (--mega-batch-rows)"
    for largest, limit in (most_rows, (fitting, "would take too much memory")):
        if (least := -(-num_rows // largest)) > count:
            count, why = least, f"more than {largest:,} rows each {limit}"
    if count > (most := max(1, num_rows // (2 * rows_per_batch))):
        count, why = most, "each needs two batches"
    return count, why


def _guard(seen: Description) -> tuple[dict[str, Any], str]:
    """Return the options of the guard, and the reason for them."""
    kept = seen.guards[0].kept_away
    share = kept / seen.num_rows
    rows = f"{counted(kept, 'row')} ({share:.1%})"
    if share > MUCH_EXCLUDED:
        reason = f"no guard, since one would exclude {rows} from the batch of each row"
        return {"guard": False}, reason
    return {"relative_margin": USUAL_MARGIN}, (
        f"a guard at {1 - USUAL_MARGIN:.0%} of the own pair's similarity (or the median's, if "
        f"higher), which excludes {rows} from the batch of each row"
    )
