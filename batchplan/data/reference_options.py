"""The option that names the embeddings of another model."""

from dataclasses import dataclass

from batchplan.errors import InputError
from batchplan.options import SimilarityOptions, option


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions(SimilarityOptions):
    """Embeddings of the same rows by another model, by which a limit is judged.

    Raises:
        InputError: as `SimilarityOptions`; the other side without the first.
    """

    reference: list[str] | None = option(
        None,
        "Another model's embeddings of the same rows, to judge the limit. Repeatable.  "
        "[default: EMBEDDINGS]",
        kind="path",
    )
    reference_pair: list[str] | None = option(
        None, "Files of y by the other model, as --pair of EMBEDDINGS. Repeatable.", kind="path"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference_pair and not self.reference:
            raise InputError("reference pair: given without --reference, the files of x")

    def check_limited(self, limited: bool) -> None:
        """Require a limit for a reference to judge; raises InputError."""
        if self.reference and not limited:
            raise InputError(
                "reference: given without a limit to judge; give a --relative-margin, "
                "--absolute-margin or --max-score"
            )
