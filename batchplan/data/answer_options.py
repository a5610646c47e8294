"""The options that say which documents are known to answer which anchors."""

from dataclasses import dataclass

from batchplan.errors import OptionError
from batchplan.options import SimilarityOptions, option


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(SimilarityOptions):
    """Columns of ids, the file that has them, and a list of known answers.

    Raises:
        OptionError: as `SimilarityOptions`; a list without the columns of its ids.
    """

    anchor_id: str | None = option(
        None, "Column of ids of the anchors. Equal ids are the same anchor.", kind="column"
    )
    positive_id: str | None = option(
        None, "Column of ids of the positives. Equal ids are the same document.", kind="column"
    )
    negative_id: list[str] | None = option(
        None, "Column of ids of each mined negative, in their order. Repeatable.", kind="column"
    )
    known: str | None = option(
        None,
        "Parquet file or qrels with ids of anchors and of more documents that answer them.",
        kind="path",
    )
    label_table: str | None = option(
        None,
        "Parquet file with these columns, in the order of the rows.  [default: EMBEDDINGS]",
        kind="path",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.known is not None and (self.anchor_id is None or self.positive_id is None):
            raise OptionError(
                "known: given without --anchor-id and --positive-id; name the columns that have "
                "its ids"
            )
        if self.negative_id and self.positive_id is None:
            raise OptionError("negative id: given without --positive-id, whose ids it shares")

    @property
    def names_ids(self) -> bool:
        """Whether there is a column of ids."""
        return self.anchor_id is not None or self.positive_id is not None

    def check_table(self, *columns: str | None) -> None:
        """Require a column of ids, or one of ``columns``, for a label table; raises OptionError."""
        if self.label_table is not None and not (self.names_ids or any(columns)):
            raise OptionError(
                "label table: given without --group-column or --anchor-id; name a column"
            )


#: The names of the options that say which answers are known.
ANSWER_OPTIONS = tuple(AnswerOptions.__annotations__)

#: The names of the options that keep rows in different batches, or in those of their source.
APART = ("group_column", "source_column", *ANSWER_OPTIONS)
