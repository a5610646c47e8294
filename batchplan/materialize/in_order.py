"""Lays out the rows of a plan, each with its number in the data."""

from dataclasses import dataclass

import pyarrow as pa

from batchplan.errors import InputError
from batchplan.materialize.layouts import lay_out
from batchplan.materialize.options import Layout, MaterializeOptions
from batchplan.options import ROW_COLUMN
from batchplan.plans import Plan
from batchplan.typing import Int64Array


@dataclass(frozen=True)
class InOrder:
    """The rows of a plan in the order of a layout. `Tuples` is the same for a table."""

    layout: Layout
    folders: dict[str, list[Int64Array]]
    group: int = 1

    @classmethod
    def of(cls, plan: Plan, options: MaterializeOptions) -> "InOrder":
        """Lay out the rows of a plan.

        Raises:
            InputError: the batches do not fit the layout.
        """
        layout = options.layout or ("order" if plan.metadata.world_size == 1 else "ranks")
        if layout in ("n-tuple", "triplet"):
            raise InputError(
                f"layout: got {layout} for a plan of batches, expected another; {layout} is for "
                "tables of negatives, as hardneg and scns write"
            )
        folders = lay_out(plan, layout, workers=options.workers, shard_rows=options.shard_rows)
        return cls(layout, folders)

    def read(self, schema: pa.Schema, _where: str) -> pa.Schema:
        """Return the columns to read: all."""
        return schema

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Return the columns to write."""
        return read.append(pa.field(ROW_COLUMN, pa.int64(), nullable=False))

    def joined(
        self, rows: pa.RecordBatch, numbers: Int64Array, schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return these rows with their numbers."""
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(numbers)], schema=schema)
