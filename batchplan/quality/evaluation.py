"""The result of an evaluation."""

from dataclasses import asdict, dataclass, field
from typing import Any

from batchplan.notebooks import figures, frame, table
from batchplan.quality.coverage import Coverage
from batchplan.quality.guard.limits import LimitSource
from batchplan.quality.known import AnswerReport
from batchplan.quality.metrics import METRICS, about, texts


@dataclass(frozen=True, kw_only=True)
class FalseNegative:
    """A mined negative that is too similar to its own anchor.

    Attributes:
        row: of the data.
        negative: its number in the row, from 1.
        similarity: to the anchor.
        positive: the similarity of the row's positive to the anchor.
    """

    row: int
    negative: int
    similarity: float
    positive: float


@dataclass(frozen=True, kw_only=True)
class MinedReport:
    """The mined negatives of the data that are likely false.

    Attributes:
        negatives: how many the rows have in all.
        false: those that reach the ceiling of their own row.
        rows_affected: rows with any of these.
        broken: pairs of two rows of a batch that break the guard by a mined negative of one, which
            is too similar to the anchor of the other, and not by the similarity of a positive; most
            are positives of that row.
        examples: up to ten of the false ones, the most similar first compared with the ceiling.
    """

    negatives: int
    false: int
    rows_affected: int
    broken: int
    examples: list[FalseNegative]


@dataclass(frozen=True, kw_only=True)
class GuardReport:
    """The pairs of a plan that are likely false negatives, and its losses without them.

    With p_i = x_i . y_i, the ceiling of row i is p_i - |p_i| * relative_margin,
    p_i - absolute_margin, or max_score. A pair {i, j} breaks the guard by ``similarity`` if
    max(s_ij, s_ji), or the similarity of an anchor to a mined negative of the other row, reaches
    the ceiling of i or of j; by ``group`` if both have the same group; by ``duplicate`` if their x
    or their y are equal; and by ``known`` if they are not, but one has a known answer of the other.
    The limits are the positive-aware mining of NV-Retriever (arXiv 2407.15831) for both rows of a
    pair and both directions. Losses are in nats, means of both directions.

    Attributes:
        reference: fingerprint of the embeddings whose similarities count; None for the data.
        planned_reference: the same when it was planned.
        without_groups: whether it was planned with groups, and is measured without any.
        relative_margin, absolute_margin, max_score: the limit; all None without a limit.
        limit_from: whether it comes from the options, from the plans or is the default; or
            ``rejected``, if the default ``excludes_much``. It is no judge then: verdicts and
            rankings count all pairs, and `batchplan plan` leaves the guard out.
        pairs: unordered pairs {i, j} of two rows of a batch, in all batches.
        broken: those that break the guard.
        false_negatives: their share; None without pairs.
        false_negatives_random: its expectation for random batches.
        excludes_much: whether more than `MUCH_EXCLUDED` of it is due to the limit, not to groups.
        by: the broken pairs by reason; a pair may have several.
        rows_affected: distinct rows of the broken pairs.
        loss_train, loss_global, loss_random, gap: as in `Evaluation`, over the positives and the
            allowed pairs only. Own mined negatives count.
        hardness: the gap reduction over these.
        mined: None without mined negatives.
    """

    reference: str | None
    planned_reference: str | None
    without_groups: bool
    relative_margin: float | None
    absolute_margin: float | None
    max_score: float | None
    limit_from: LimitSource
    pairs: int
    broken: int
    false_negatives: float | None
    false_negatives_random: float
    excludes_much: bool
    by: dict[str, int]
    rows_affected: int
    loss_train: float
    loss_global: float
    loss_random: float
    gap: float
    hardness: float
    mined: MinedReport | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation:
    """How good a plan is.

    docs/metrics.md defines every number, and `batchplan.quality.metrics.METRICS` describes most
    in a few words. Losses and gaps are in nats, means of both directions. No number is infinite or
    NaN. ``random_z`` is None if all random plans have the same loss and the plan another.

    Attributes:
        hard_negative_recall: by the number of hardest negatives, ``1`` and ``10``.
        similarity_percentiles: by percent; empty without negatives.
        similarity_histogram: ``edges`` (41) of bins of equal width; ``plan`` and ``random`` (40
            each), the shares of the negatives' similarities in the bins, of the plan and of the
            first random plan. Empty without negatives.
        guard: None without a limit and without groups.
        answers: known answers among the negatives; None if they were not looked for.
        fresh: whether the plan says that it was made for these embeddings.
        computed: by name, the metrics that have a formula in `METRICS`; `to_dict` lists them
            with the others.
        sample: the rows that were compared with all rows, None for all.
        standard_errors: of the estimates, by their dotted names in `to_dict`. Empty without a
            sample.
    """

    num_rows: int
    num_batches: int
    batch_size: int
    partitions_rows: bool
    temperature: float
    similarity: str
    loss_train: float
    loss_global: float
    gap: float
    loss_random: float
    loss_random_std: float
    random_z: float | None
    gap_random: float
    gap_reduction: float
    loss_oracle: float
    oracle_share: float
    hard_negative_recall: dict[str, float]
    positive_probability: float
    similarity_percentiles: dict[str, float]
    similarity_histogram: dict[str, list[float]]
    guard: GuardReport | None
    answers: AnswerReport | None
    coverage: Coverage
    fresh: bool
    computed: dict[str, float | None]
    sample: int | None = None
    standard_errors: dict[str, float] = field(default_factory=dict)

    @property
    def judge(self) -> GuardReport | None:
        """The guard by which verdicts leave out likely false negatives; None if all pairs count."""
        rejected = self.guard is not None and self.guard.limit_from == "rejected"
        return None if rejected else self.guard

    @property
    def hardness(self) -> float:
        """The share of the gap between random batches and all rows that the plan closes, among true
        negatives; among all if no guard judges."""
        return self.gap_reduction if self.judge is None else self.judge.hardness

    @property
    def false_negatives(self) -> float | None:
        """The share of the in-batch pairs that are likely false negatives; None if no guard
        judges."""
        return None if self.judge is None else self.judge.false_negatives

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values; fields of the sample only if there is one."""
        document = asdict(self)
        computed = document.pop("computed")
        if self.guard is not None:
            for name in ("hardness", "excludes_much"):
                del document["guard"][name]
            if self.guard.mined is None:
                del document["guard"]["mined"]
        if self.sample is None:
            del document["sample"], document["standard_errors"]
        judged = {"hardness": self.hardness, "false_negatives": self.false_negatives}
        return {**document, **computed, **judged}

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each number of `to_dict`: ``figure``, its dotted
        name there, ``value`` and ``standard_error``, 0 for exact values. What is undefined has no
        row.

        Raises:
            ResourceError: pandas is not installed.
        """
        document = self.to_dict()
        document.pop("standard_errors", None)
        found = dict(figures(document))
        errors = [self.standard_errors.get(name, 0.0) for name in found]
        named = {"figure": list(found), "value": list(found.values())}
        return frame({**named, "standard_error": errors})

    def __repr__(self) -> str:
        """The batches, then a line for each metric with a label."""
        return "\n".join(f"{name:31} {text}" for name, text in self._lines())

    def _repr_html_(self) -> str:
        """The same as a table."""
        return table(self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        document = self.to_dict()
        shown = [(METRICS[name].label, text) for name, text in texts(document).items()]
        return [("batches", about(document)), *shown]
