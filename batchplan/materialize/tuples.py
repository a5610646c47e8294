"""Writes tables of negatives as texts, with the column names of sentence-transformers: each row is
an anchor, its positive and its negatives."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import is_text
from batchplan.errors import InputError
from batchplan.materialize.options import Layout, MaterializeOptions
from batchplan.plans.negatives import Negatives
from batchplan.typing import Int64Array

_SIDES = ("anchor", "positive")


@dataclass(frozen=True)
class Tuples:
    """The tuples of a table of n anchors with M negatives each.

    Attributes:
        layout: ``n-tuple``, a row for each anchor with all its negatives; or ``triplet``, M rows.
        folders: a single one; its shards are row numbers of the data, `group` for each tuple.
        group: rows of the data in a tuple: that of the anchor, then those of the negatives.
    """

    layout: Layout
    folders: dict[str, list[Int64Array]]
    group: int

    @classmethod
    def of(cls, table: Negatives, options: MaterializeOptions) -> "Tuples":
        """Lay out the tuples of a table.

        Raises:
            InputError: workers, or a layout of plans.
        """
        layout = options.layout or "n-tuple"
        if layout not in ("n-tuple", "triplet") or options.workers > 1:
            raise InputError(
                f"layout: got {layout} with {options.workers} workers for a table of negatives, "
                "expected n-tuple or triplet with 1; its rows have no order to keep"
            )
        rows = np.column_stack([table.anchors, table.negatives])
        if layout == "triplet":
            anchors = np.repeat(table.anchors, table.per_anchor)
            rows = np.column_stack([anchors, table.negatives.ravel()])
        size = options.shard_rows
        shards = [rows[start : start + size].ravel() for start in range(0, len(rows), size)]
        return cls(layout, {"": shards}, rows.shape[1])

    def read(self, schema: pa.Schema, where: str) -> pa.Schema:
        """Return the columns to read: that of the anchors, and that of positives and negatives.

        Raises:
            InputError: it is unclear which; ``where`` begins the message.
        """
        texts = [field.name for field in schema if is_text(field.type)]
        names = list(_SIDES) if set(_SIDES) <= set(schema.names) else texts
        if len(schema) == 2:
            names = schema.names
        if len(names) != 2:
            raise InputError(
                f"{where}: got {len(names)} columns of text ({', '.join(names):.200}), expected 2, "
                "of anchors and of positives; name them in this order with --column"
            )
        return pa.schema([schema.field(name) for name in names])

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Return the columns to write."""
        anchor, positive = (field.type for field in read)
        names = ["negative"]
        if self.layout == "n-tuple":
            names = [f"negative_{number}" for number in range(1, self.group)]
        return pa.schema(
            [(_SIDES[0], anchor), (_SIDES[1], positive), *((name, positive) for name in names)]
        )

    def joined(
        self, rows: pa.RecordBatch, numbers: Int64Array, schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return the tuples of these rows, `group` rows for each tuple."""
        anchors, positives = rows.columns
        firsts = np.arange(0, len(numbers), self.group)
        columns = [positives.take(pa.array(firsts + place)) for place in range(self.group)]
        return pa.RecordBatch.from_arrays([anchors.take(pa.array(firsts)), *columns], schema=schema)
