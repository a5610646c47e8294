"""What every planner is told, and how a field of its options becomes a command-line option."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from batchplan.checks import check_options
from batchplan.errors import InputError

Tail = Literal["keep", "drop", "pad"]
BatchOrder = Literal["planned", "shuffled"]
Similarity = Literal["cosine", "dot"]


def option(default: Any, help: str, *flags: str) -> Any:  # noqa: A002  (as in typer)
    """A dataclass field that the command line shows, as ``flags`` or as ``--its-name``."""
    return dataclasses.field(default=default, metadata={"help": help, "flags": flags})


@dataclass(frozen=True, kw_only=True)
class PlannerOptions:
    """The options all planners share; a planner adds its own in a subclass.

    Raises:
        InputError: a batch size below 2, or a value that is not of an option's type or choices.
    """

    batch_size: int = option(64, "Rows in a batch.", "--batch-size", "-b")
    tail: Tail = option(
        "keep",
        "What becomes of the last N mod B rows: a short last batch (keep), left out (drop), or a "
        "full batch with the rows that come just before them (pad).",
    )
    batch_order: BatchOrder = option(
        "planned", "Order of the batches; shuffled keeps each batch's rows together."
    )
    similarity: Similarity = option(
        "cosine", "Similarity of two rows: cosine normalises them, dot takes them as they are."
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.batch_size < 2:
            raise InputError(f"batch size: got {self.batch_size}, expected at least 2 rows")

    @property
    def rows_per_batch(self) -> int:
        """Rows that are contrasted together: what a planner makes batches of."""
        return self.batch_size
