"""The result of an evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from batchplan.quality.coverage import Coverage
from batchplan.quality.false_negatives import FalseNegatives


@dataclass(frozen=True, kw_only=True)
class Direction:
    """The part of an evaluation that differs between x to y and y to x; see `Evaluation`."""

    loss_train: float
    loss_global: float
    loss_random: float
    loss_oracle: float
    gap: float
    bound_36: float
    bound_37: float
    positive_probability: float


@dataclass(frozen=True, kw_only=True)
class GuardReport:
    """The pairs of a plan that are likely false negatives, and its losses without them.

    With p_i = x_i . y_i, the ceiling of row i is p_i - |p_i| * relative_margin,
    p_i - absolute_margin, or max_score. A pair {i, j} breaks the guard by ``similarity`` if
    max(s_ij, s_ji) reaches the ceiling of i or of j, by ``group`` if both carry the same group, and
    by ``duplicate`` if their x or their y are equal; otherwise it is allowed. This is the
    positive-aware mining of NV-Retriever (Moreira et al. 2024, arXiv 2407.15831) for both rows of a
    pair and both directions. Losses are in nats, means of both directions.

    Attributes:
        relative_margin, absolute_margin, max_score: the limit; all None if there is none.
        pairs: unordered pairs {i, j} of two rows of a batch, in all batches.
        broken, broken_share: those that break the guard; the share is None without pairs.
        broken_share_random: its expectation for random batches, exactly.
        by: the broken pairs by reason; a pair may have several.
        rows_affected: different rows with a broken pair in a batch of theirs.
        loss_train, loss_global, loss_random, gap, gap_reduction: as those of `Evaluation`, where
            rows meet their positives and the rows that are allowed to them.
    """

    relative_margin: float | None
    absolute_margin: float | None
    max_score: float | None
    pairs: int
    broken: int
    broken_share: float | None
    broken_share_random: float
    by: dict[str, int]
    rows_affected: int
    loss_train: float
    loss_global: float
    loss_random: float
    gap: float
    gap_reduction: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good a plan is.

    docs/metrics.md defines every number, and `batchplan.quality.metrics.METRICS` says in a few
    words what it is; theorems are those of GCBS (Sachidananda et al. 2023). Losses, gaps and bounds
    are in nats, means of both directions. No number is infinite or NaN. Undefined is None:
    ``random_z`` where random plans are equal to each other and not to the plan, ``bottleneck``
    where every batch holds one row, and ``bandwidth`` where the plan holds both rows of no edge.

    Attributes:
        quantile: as in the options, None where ``neighbors`` was given.
        hard_negative_recall: by ``1`` and ``10``, the number of the hardest.
        similarity_percentiles: by percent; empty where there are no negatives.
        similarity_histogram: by ``edges`` (41), ``plan`` and ``random`` (40 each), the shares of
            the similarities of negatives in bins of equal width, for the plan and for the first
            random plan; empty where there are none.
        false_negatives: by ``labels`` and ``group``, those that were given.
        guard: None unless a limit or groups were given.
        directions: by ``x_to_y`` and ``y_to_x``, what the means are made of.
        computed: by name, the metrics whose rows in `METRICS` have a formula of their own;
            `to_dict` has them beside the others.
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
    bound_36: float
    bound_37: float
    qap_objective: float
    bottleneck: float | None
    quantile: float | None
    edges: int
    bandwidth: int | None
    edge_recall: float
    hard_negative_recall: dict[str, float]
    positive_probability: float
    similarity_percentiles: dict[str, float]
    similarity_histogram: dict[str, list[float]]
    false_negatives: dict[str, FalseNegatives]
    guard: GuardReport | None
    coverage: Coverage
    directions: dict[str, Direction]
    computed: dict[str, float | None]

    def with_columns(self, **columns: str | None) -> Evaluation:
        """The same evaluation that knows the names of its columns of ``labels`` and ``group``."""
        named = {
            kind: replace(found, column=columns.get(kind))
            for kind, found in self.false_negatives.items()
        }
        return replace(self, false_negatives=named)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values, in this order."""
        document = asdict(self)
        computed = document.pop("computed")
        return {**document, **computed}
