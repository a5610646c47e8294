"""A plan as a line of text, and as HTML for notebooks."""

from collections.abc import Iterator

import numpy as np

from batchplan.notebooks import table
from batchplan.plans.metadata import PlanMetadata
from batchplan.text import counted, one_line
from batchplan.typing import Int64Array

_DOTS = 1500  # of the picture, whatever the length of the plan
_WIDTH, _HEIGHT = 300, 120  # of the picture, in pixels
_LONGEST = 40  # characters of a planner's name


def summary(metadata: PlanMetadata, num_batches: int) -> str:
    """Return a plan as one line of text."""
    name = one_line(metadata.planner or "unknown planner")[:_LONGEST]
    devices = f" for {metadata.world_size} devices" if metadata.world_size > 1 else ""
    size = f"{counted(num_batches, 'batch', 'batches')} of {metadata.batch_size:,}"
    return f"{name}: {size}{devices} over {metadata.num_rows:,} rows"


def html_of(rows: Int64Array, metadata: PlanMetadata, num_batches: int) -> str:
    """Return a table of facts about a plan, and a picture with a dot for each row: its place in
    training from left to right, its place in the data from top to bottom."""
    at = np.unique(np.linspace(0, max(len(rows) - 1, 0), _DOTS).astype(np.int64))[: len(rows)]
    across = (at * (_WIDTH - 1) / max(len(rows) - 1, 1)).round(1)
    down = (rows[at] * (_HEIGHT - 1) / max(metadata.num_rows - 1, 1)).round(1)
    path = "".join(f"M{x:g} {y:g}h1" for x, y in zip(across, down, strict=True))
    return (
        f"{table(_facts(metadata, num_batches))}"
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'>"
        "<title>Rows of the data, from top to bottom, in training order, from left to right</title>"
        f"<path d='{path}' transform='translate(0 .5)' stroke='currentColor' fill='none'/></svg>"
    )


def _facts(metadata: PlanMetadata, num_batches: int) -> Iterator[tuple[str, str]]:
    yield "planner", metadata.planner or "unknown"
    yield "batches", f"{num_batches:,} of {metadata.batch_size:,}"
    if metadata.world_size > 1:
        yield "devices", f"{metadata.world_size:,}"
    yield "rows", f"{metadata.num_rows:,}" + ", each once" * metadata.partitions_rows
    if metadata.seed is not None:
        yield "seed", str(metadata.seed)
