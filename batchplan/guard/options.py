"""Options of guards; `batchplan.guard.guard` explains them."""

from dataclasses import dataclass, fields
from math import inf
from typing import Any

from batchplan.data.answer_options import AnswerOptions
from batchplan.data.reference_options import ReferenceOptions
from batchplan.options import LIMITS, check_one_limit, option

_GUARD = (
    "Put equal and too similar rows, and known answers, into different batches, not only groups "
    "and ids."
)


@dataclass(frozen=True, kw_only=True)
class GroupOptions(AnswerOptions):
    """Options that name a column of groups.

    Raises:
        OptionError: as `AnswerOptions`; a label table without a named column.
    """

    group_column: str | None = option(
        None,
        "Column of groups. Rows of one group are not negatives of each other.",
        kind="column",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_table(*self.columns())

    def columns(self) -> tuple[str | None, ...]:
        """Return the columns of groups and classes to read from the label table."""
        return (self.group_column,)


def margin_option(default: float | None) -> Any:
    """Return the option ``relative_margin``."""
    return option(
        default,
        "Put two rows into different batches unless they are less similar than either row's own "
        "pair by this share: 0.1 allows less than 90%.",
        ge=0,
        le=1,
    )


@dataclass(frozen=True, kw_only=True)
class GuardOptions(ReferenceOptions, GroupOptions):
    """The options of planners that put likely false negatives into different batches.

    At most one limit applies. A subclass may give ``relative_margin`` a default. Another limit, or
    ``guard=False``, replaces this default by None, and plans store None.

    Raises:
        OptionError: as its bases; limits out of range, more than one, or none for a reference.
    """

    relative_margin: float | None = margin_option(None)
    absolute_margin: float | None = option(
        None, "As --relative-margin, but by this difference.", ge=0
    )
    max_score: float | None = option(
        None, "Put rows that are at least this similar into different batches."
    )
    guard_penalty: float | None = option(
        None,
        "Loss, in nats, to give up for each too similar pair that is separated.  [default: inf]",
        ge=0,
        finite=False,
    )
    guard: bool = option(True, _GUARD)

    def __post_init__(self) -> None:
        super().__post_init__()
        usual = {field.name: field.default for field in fields(self)}["relative_margin"]
        others = (self.absolute_margin, self.max_score)
        if self.relative_margin == usual and (any(x is not None for x in others) or not self.guard):
            object.__setattr__(self, "relative_margin", None)
        self.check_limited(check_one_limit(self, "ignores similarities"))
        if self.guard_penalty == inf:
            object.__setattr__(self, "guard_penalty", None)  # JSON has no inf

    def limits(self) -> dict[str, Any]:
        """Return the arguments of `make_guard` that these options set."""
        return {name: getattr(self, name) for name in ("similarity", *LIMITS)}


@dataclass(frozen=True, kw_only=True)
class OptionalGuardOptions(GuardOptions):
    """The options of planners whose guard is off unless there is a limit or a column of groups or
    ids.

    Raises:
        OptionError: as `GuardOptions`.
    """

    guard: bool | None = option(  # type: ignore[assignment]
        None, f"{_GUARD}  [default: with a limit, groups or ids]"
    )

    def __post_init__(self) -> None:
        if self.guard is None:
            asked = (getattr(self, name) for name in (*LIMITS, "group_column"))
            given = self.names_ids or any(value is not None for value in asked)
            object.__setattr__(self, "guard", given)
        super().__post_init__()
