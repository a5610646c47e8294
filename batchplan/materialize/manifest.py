"""`Manifest`: the description of a data set in plan order, in ``_batchplan.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchplan.materialize.options import FormatName, Layout
from batchplan.options import Scope

NAME = "_batchplan.json"  # readers of folders skip names that begin with _


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """How a data set was written, and for which plan; the fields of the file, in their order.

    Attributes:
        plan: digest of the plan, as `Plan.digest`.
        fingerprint: of the plan's embeddings, None if unknown.
        layout: see `batchplan.materialize.layouts.lay_out`.
        format: of the files.
        batch_size: rows of a full batch of the plan.
        world_size: number of devices.
        scope: which rows of a step meet in the loss.
        workers: streams of each folder; shard s belongs to worker s mod ``workers``.
        num_rows: rows of the planned data.
        rows: rows written.
        columns: those of the data; a column ``batchplan_row`` follows.
        shards: each file: its ``path`` below the folder and its ``rows``, in reading order.
        version: of this document.
    """

    plan: str
    fingerprint: str | None
    layout: Layout
    format: FormatName
    batch_size: int
    world_size: int
    scope: Scope
    workers: int
    num_rows: int
    rows: int
    columns: list[str]
    shards: list[dict[str, Any]]
    version: int = 1
