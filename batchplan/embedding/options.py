"""The options of `embed`."""

from dataclasses import MISSING, dataclass

from batchplan.errors import OptionError
from batchplan.options import SHARD_ORDER, ShardOrder, check_options, option


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """How texts are embedded.

    Raises:
        InputError: a value has not the type of its option, or is out of range; or the numbers
            of prompts and columns differ.
    """

    columns: str = option(
        MISSING,
        "Columns of texts, joined by commas: anchor,positive, then mined negatives.",
    )
    id_column: str | None = option(
        None, "Column of row ids.  [default: id, if there is one]", kind="column"
    )
    shard_order: ShardOrder | None = SHARD_ORDER
    prompt: list[str] | None = option(
        None,
        "Name of the model's prompt for each column in turn. Repeatable.  [default: the "
        "model's own]",
    )
    prompt_text: list[str] | None = option(
        None, "Text to put before the texts of each column in turn. Repeatable."
    )
    table: bool = option(
        False,
        "Average the model's token vectors instead of running it: seconds, without a GPU.",
        "--table",
    )
    keep_texts: bool = option(
        False, "Also write the texts, cut to 300 characters, for report.", "--keep-texts"
    )
    normalize: bool = option(False, "Scale vectors to length 1.", "--normalize")
    batch_size: int = option(32, "Texts at a time.", "--batch-size", "-b", ge=1)
    shard_rows: int = option(
        16384, "Rows of a shard. An interruption loses at most one.", ge=1, lt=1 << 32
    )

    def __post_init__(self) -> None:
        check_options(self)
        names = self.names
        if len(set(names)) != len(names) or "" in names:
            raise OptionError(
                f"columns: got {self.columns!r:.80}, expected names that differ, joined by commas"
            )
        outputs = [*self.written, *(f"{name}_text" for name in self.written if self.keep_texts)]
        if twice := [name for name in outputs if outputs.count(name) > 1]:
            raise OptionError(
                f"columns: got {self.columns!r:.80}, two of which would be written as "
                f"{twice[0]!r:.80}; rename one of them"
            )
        for label, values in (("prompt", self.prompt), ("prompt text", self.prompt_text)):
            if values and len(values) != len(names):
                raise OptionError(
                    f"{label}: got {len(values)}, expected {len(names)}, one for each column; an "
                    "empty one for none"
                )
        if self.prompt and self.prompt_text:
            raise OptionError("prompt: given with prompt text, expected one of them; leave out one")
        if self.table and (self.prompt or self.prompt_text or self.normalize):
            raise OptionError(
                "table: given with a prompt or normalize, which need the whole model; leave out "
                "one of them"
            )

    @property
    def written(self) -> list[str]:
        """The names of the columns of vectors. Anchors and positives keep theirs. Mined negatives
        get numbers, as planners expect."""
        numbers = range(1, len(self.names) - 1)
        return [*self.names[:2], *(f"negative_{number}" for number in numbers)]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.columns.split(",")
