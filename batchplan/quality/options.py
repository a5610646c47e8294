"""The settings of an evaluation."""

from dataclasses import dataclass

from batchplan.data.answer_options import AnswerOptions
from batchplan.data.reference_options import ReferenceOptions
from batchplan.errors import OptionError
from batchplan.options import (
    LIMITS,
    USUAL_MARGIN,
    check_one_limit,
    option,
    temperature_option,
)

ALL_UP_TO = 200_000  # rows, without ``sample``
USUAL_SAMPLE = 4096
SMALLEST_SAMPLE = 64  # fewer give no standard errors to rely on


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ReferenceOptions, AnswerOptions):
    """How to measure a plan.

    Attributes:
        temperature: tau of the NT-Xent loss.
        similarity: ``cosine`` (normalised rows) or ``dot`` (rows as they are).
        random_trials: number of random plans to compare with.
        sample: rows to compare with all rows, from which figures that need all rows are estimated;
            0 compares all rows, None all of up to `ALL_UP_TO` and `USUAL_SAMPLE` of more.
        relative_margin, absolute_margin, max_score: at most one limit on the similarity of
            negatives; see `GuardReport`. Pairs that reach it are counted, and the plan is
            also measured without them. If there is none, see `quality.guard.limits`.
        guard: whether a limit applies at all.
        edges: whether to find the largest similarities of all rows, for `edge_recall` and
            `bandwidth`.
        anchor_id, positive_id, negative_id, known, label_table: known answers, which are counted
            among the negatives.
        reference, reference_pair: files of another model's embeddings of the same rows, by which
            the limit is judged.

    Raises:
        OptionError: a value outside its range, a sample that is too small, two limits, or a limit
            or a reference without a guard.
    """

    temperature: float = temperature_option()
    random_trials: int = option(20, "Random plans to compare with.", ge=2)
    sample: int | None = option(
        None,
        "Rows to compare with all rows, for estimates; 0 compares all.  [default: 4096 above "
        "200,000 rows, else 0]",
        metavar="ROWS",
        ge=0,
    )
    relative_margin: float | None = option(
        None,
        "Judge without negatives that reach 1 - R of the positive's similarity.  "
        f"[default: the plan's limit, or {USUAL_MARGIN}]",
        ge=0,
        le=1,
    )
    absolute_margin: float | None = option(
        None, "Judge without negatives that reach the positive's similarity less M.", ge=0
    )
    max_score: float | None = option(None, "Judge without negatives that reach a similarity of C.")
    guard: bool = option(True, "Judge without likely false negatives.")
    edges: bool = option(
        True, "Measure edge_recall and bandwidth, which takes a product of all pairs of rows."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample and self.sample < SMALLEST_SAMPLE:
            raise OptionError(
                f"sample: got {self.sample}, expected at least {SMALLEST_SAMPLE} rows, or 0 to "
                "compare all rows"
            )
        check_one_limit(self, "measures all pairs alike")
        self.check_limited(self.guard)

    def sampled(self, num_rows: int) -> int | None:
        """Return the even number of rows to compare with all ``num_rows``; None for all."""
        usual = USUAL_SAMPLE if num_rows > ALL_UP_TO else 0
        count = usual if self.sample is None else self.sample
        return count // 2 * 2 if 0 < count < num_rows else None

    @property
    def limited(self) -> bool:
        """Whether the guard looks at similarities."""
        return any(getattr(self, name) is not None for name in LIMITS)
