"""What measures know about the rows, besides the embeddings."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchplan.data import Embeddings
from batchplan.data.answers import Answers, answers_of
from batchplan.data.reference import load_reference
from batchplan.errors import InputError
from batchplan.quality.options import EvaluationOptions
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array


@dataclass(frozen=True, eq=False)
class RowFacts:
    """Groups of N rows, and a reference.

    Attributes:
        groups: int64 (N,), from 0 on, -1 for none; None if they are not known.
        group_column: the name of their column, if it is known.
        reference: embeddings of another model, by which the limit is judged; None for the data.
        answers: known answers; None if only equal rows count.
    """

    groups: Int64Array | None = None
    group_column: str | None = None
    reference: Embeddings | None = None
    answers: Answers | None = None

    @classmethod
    def read(
        cls,
        embeddings: Embeddings,
        options: EvaluationOptions,
        runtime: Runtime,
        groups: ArrayLike | None = None,
        group_column: str | None = None,
        *,
        answers: bool = True,
    ) -> "RowFacts":
        """Check the groups of the rows, and read the reference and, with ``answers``, the known
        answers, which takes a pass over the rows.

        Raises:
            InputError, ResourceError: as `check_codes`, `load_reference` and `answers_of`.
        """
        codes = None if groups is None else check_codes(groups, embeddings.num_rows)
        reference, known = load_reference(options, embeddings, runtime), None
        if answers:
            with runtime.stage("answers", embeddings.num_rows * (1 + embeddings.paired)) as advance:
                known = answers_of(embeddings, options, advance=advance)
        return cls(codes, group_column, reference, known)

    @classmethod
    def named(
        cls, embeddings: Embeddings, named: Any, options: EvaluationOptions, runtime: Runtime
    ) -> "RowFacts":
        """Read what the options of a planner name: groups, the reference, and known answers if
        there are ids.

        Raises:
            InputError, ResourceError: as `load_labels` and `read`.
        """
        from batchplan.data import load_labels  # needs Arrow

        column = getattr(named, "group_column", None)
        groups = None if column is None else load_labels(column, embeddings, named.label_table)
        return cls.read(embeddings, options, runtime, groups, column, answers=options.names_ids)

    def take(self, rows: Int64Array) -> "RowFacts":
        """Return the facts about some rows, int64 (m,), in this order."""
        groups = None if self.groups is None else self.groups[rows]
        reference = self.reference and self.reference.take(rows)
        answers = self.answers and self.answers.take(rows)
        return replace(self, groups=groups, reference=reference, answers=answers)


def check_codes(values: ArrayLike, num_rows: int) -> Int64Array:
    """Return groups as small codes from 0 on: int64 (N,), -1 for none.

    Args:
        values: integers (N,), equal for equal groups, -1 for a row that has none.
        num_rows: N.

    Raises:
        InputError: not integers, not N of them, or one below -1.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.shape != (num_rows,) or array.min() < -1:
        raise InputError(
            f"groups: got {array.dtype} {array.shape}, expected integers ({num_rows},) from -1 on: "
            "a code for each row of the data in the same order, -1 where there is no group"
        )
    return np.where(array < 0, -1, np.unique(array, return_inverse=True)[1])
