"""Options that keep likely false negatives apart; what they mean is in `batchplan.guard.guard`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf, isfinite
from typing import TYPE_CHECKING

from batchplan.errors import InputError
from batchplan.options import SimilarityOptions, option

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.guard.guard import Guard
    from batchplan.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class GuardOptions(SimilarityOptions):
    """The options of planners that keep likely false negatives apart.

    A subclass may give ``max_similarity`` another default, which a margin or ``guard=False``
    replaces by None: at most one of the two limits is in force, and only that is stored.

    Raises:
        InputError: as `SimilarityOptions`; limits out of their range or that exclude each other,
            or a label table without a column.
    """

    group_column: str | None = option(
        None, "Parquet column of groups: rows of one group are kept apart.", kind="column"
    )
    label_table: str | None = option(
        None,
        "Parquet file of that column, one row a row of the data, instead of the embeddings.",
        kind="path",
    )
    max_similarity: float | None = option(
        None, "Keep rows apart that are as similar as this share of either's own pair."
    )
    margin: float | None = option(
        None, "Keep rows apart that are as similar as either's own pair less this."
    )
    guard_price: float | None = option(
        None,
        "Nats of loss that it may cost to keep apart two rows that are too similar; inf: any.  "
        "[default: inf]",
    )
    guard: bool = option(
        True, "Keep apart rows that are equal, or too similar; without, only groups."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        usual = {field.name: field.default for field in fields(self)}["max_similarity"]
        if self.max_similarity == usual and (self.margin is not None or not self.guard):
            object.__setattr__(self, "max_similarity", None)
        limits = {"max similarity": self.max_similarity, "margin": self.margin}
        given = [f"{name} {value}" for name, value in limits.items() if value is not None]
        if len(given) == 2:
            raise InputError(
                f"{given[0]}: given with {given[1]}, expected one of the two; leave out "
                "--max-similarity or --margin"
            )
        if given and not self.guard:
            raise InputError(
                f"{given[0]}: given with --no-guard, which looks at no similarity; leave out one "
                "of the two"
            )
        _check_limits(self.max_similarity, self.margin)
        if self.guard_price == inf:
            object.__setattr__(self, "guard_price", None)  # as it is stored
        if self.guard_price is not None and not self.guard_price >= 0:
            raise InputError(
                f"guard price: got {self.guard_price}, expected 0 nats or more; inf keeps rows "
                "apart at any price"
            )
        if self.label_table is not None and not any(self.columns()):
            raise InputError("label table: given without --group-column; name a column")

    def columns(self) -> tuple[str | None, ...]:
        """The columns that are read from the label table, where there is one."""
        return (self.group_column,)


def _check_limits(max_similarity: float | None, margin: float | None) -> None:
    if max_similarity is not None and not (max_similarity > 0 and isfinite(max_similarity)):
        raise InputError(
            f"max similarity: got {max_similarity}, expected a number above 0: a share of the "
            "similarity of a row's own pair (0.95 is common)"
        )
    if margin is not None and not (margin >= 0 and isfinite(margin)):
        raise InputError(
            f"margin: got {margin}, expected a number of 0 or more: how far below the similarity "
            "of a row's own pair others must stay (0.05 is common)"
        )


def guard_of(embeddings: Embeddings, options: GuardOptions, runtime: Runtime) -> Guard:
    """The guard that the options ask for.

    Raises:
        InputError: no such group column, a zero row under cosine, or products that float32 cannot
            hold.
    """
    from batchplan.guard.guard import make_guard
    from batchplan.planners.common.negatives import codes_of

    return make_guard(
        embeddings,
        runtime,
        similarity=options.similarity,
        max_similarity=options.max_similarity,
        margin=options.margin,
        groups=codes_of(embeddings, options.label_table, options.group_column),
        duplicates=options.guard,
    )
