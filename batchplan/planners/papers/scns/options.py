"""Options of `scns`."""

from dataclasses import dataclass
from typing import Literal

from batchplan.errors import OptionError
from batchplan.options import option
from batchplan.planners.common.options import TableOptions


@dataclass(frozen=True, kw_only=True)
class ScnsOptions(TableOptions):
    """Options of `scns`.

    Raises:
        OptionError: as its bases; the class level without labels, class embeddings without the
            class level, coefficients for batches.
    """

    level: Literal["instance", "class"] = option(
        "instance",
        "Draw from the most similar rows or classes.",
    )
    top_k: int = option(100, "Most similar rows, or classes, to draw from.", ge=1)
    scns_temperature: float = option(0.1, "Temperature of the softmax. Lower is harder.", gt=0)
    per_row: int = option(10, "Negatives per row.", ge=1)
    label_column: str | None = option(
        None, "Column of classes. No row gets a negative of its own class.", kind="column"
    )
    class_embeddings: str | None = option(
        None,
        "File with a vector for each class, in the order in which labels first appear.  "
        "[default: the means of the rows]",
        kind="path",
    )
    mixup_beta: float | None = option(
        None, "Add coefficients of latent mixup, drawn from Beta(b, b).", gt=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.level == "class" and self.label_column is None:
            raise OptionError("level: class needs classes; name their column with --label-column")
        if self.level == "instance" and self.class_embeddings is not None:
            raise OptionError("class embeddings: given without --level class, which uses them")
        if self.mixup_beta is not None and self.as_batches:
            raise OptionError("mixup beta: a plan has no coefficients; leave out --as-batches")
        if self.level == "instance" and self.per_row > self.top_k:
            raise OptionError(
                f"per row: got {self.per_row} negatives, expected at most top_k, {self.top_k}, "
                "because the negatives of a row are distinct"
            )

    def columns(self) -> tuple[str | None, ...]:
        return (self.label_column, self.group_column)
