"""What measures know about the rows, besides the embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from numpy.typing import ArrayLike

from batchplan.data import Embeddings
from batchplan.data.reference import load_reference
from batchplan.data.reference_options import ReferenceOptions
from batchplan.quality.false_negatives import check_codes
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array


@dataclass(frozen=True, eq=False)
class RowFacts:
    """Labels and groups of N rows, and a reference.

    Attributes:
        codes: ``labels`` and ``group``, if they are known: int64 (N,), from 0 on, -1 for none.
        columns: the names of their columns, by the same keys.
        reference: embeddings of another model, by which the limit is judged; None for the data.
    """

    codes: dict[str, Int64Array] = field(default_factory=dict)
    columns: Mapping[str, str | None] = field(default_factory=dict)
    reference: Embeddings | None = None

    @classmethod
    def read(
        cls,
        embeddings: Embeddings,
        options: ReferenceOptions,
        runtime: Runtime,
        labels: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        columns: Mapping[str, str | None] | None = None,
    ) -> RowFacts:
        """Check labels and groups of the rows, and load the reference that the options name.

        Raises:
            InputError, ResourceError: as `check_codes` and `load_reference`.
        """
        codes = {
            kind: check_codes(values, embeddings.num_rows, what)
            for kind, what, values in (("labels", "labels", labels), ("group", "groups", groups))
            if values is not None
        }
        return cls(codes, columns or {}, load_reference(options, embeddings, runtime))

    def take(self, rows: Int64Array) -> RowFacts:
        """Return the facts about some rows, int64 (m,), in this order."""
        codes = {kind: of_rows[rows] for kind, of_rows in self.codes.items()}
        return replace(self, codes=codes, reference=self.reference and self.reference.take(rows))
