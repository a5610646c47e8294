"""The command `concat`: joins plans of parts of the data to a plan of all rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from batchplan.cli.grouping import argument, grouped
from batchplan.cli.options import FORCE
from batchplan.cli.output import say
from batchplan.options import BatchOrder, option

if TYPE_CHECKING:  # it loads numpy
    from batchplan.plans.plan import Plan

Parts = Annotated[list[str], argument("PLAN", "Plans of the parts, in the order of the data.")]


@grouped
def concat(
    parts: Parts,
    output: str = option("plan.npy", "Plan to write, in any format.", "--output", "-o"),
    batch_order: BatchOrder = option(
        "shuffled",
        "Order of the batches: all shuffled, or part after part.",
    ),
    seed: int = option(0, "Random seed.", ge=0),
    force: bool = FORCE,
) -> None:
    """Join plans of parts of the data, such as shards.

    Row numbers of a part follow the rows of the parts before it.

    \b
    Example:
      batchplan concat part0.npy part1.npy -o all.npy
    """
    from batchplan.plans.concatenation import concat as join
    from batchplan.plans.output import check_output
    from batchplan.plans.plan import Plan

    check_output(output, force=force, inputs=parts)
    plans = {f"{path} (part {number})": Plan.load(path) for number, path in enumerate(parts)}
    plan = join(plans, batch_order=batch_order, seed=seed)
    ids = _ids(parts, [*plans.values()]) if output.lower().endswith(".parquet") else None
    plan.save(output, force=force, ids=ids, inputs=parts)
    say(f"{output}: {plan.num_batches:,} batches of {plan.metadata.num_rows:,} rows")


def _ids(paths: list[str], plans: list[Plan]) -> Any:
    """Return the ids of the rows of all parts, null for rows that no batch has; None unless each
    plan has ids, of one type."""
    import numpy as np
    import pyarrow as pa

    from batchplan.plans.formats.parquet import entry_ids

    found = []
    for path, plan in zip(paths, plans, strict=True):
        if (own := entry_ids(Path(path), plan.digest)) is None:
            return None
        entries = np.full(plan.metadata.num_rows, -1)
        entries[plan.rows] = np.arange(len(plan.rows))
        found.append(own.take(pa.array(entries, mask=entries < 0)))
    return pa.concat_arrays(found) if len({own.type for own in found}) == 1 else None
