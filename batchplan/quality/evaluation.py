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
        broken: those that break the guard.
        broken_share: broken / pairs, None where every batch holds one row.
        broken_share_random: its expectation for random batches, exactly.
        by: by ``similarity``, ``group`` and ``duplicate``, the pairs that break it for that reason;
            a pair may do so for several.
        rows_affected: different rows that break the guard with a row of a batch of theirs.
        loss_train: NT-Xent loss of the plan's batches where each entry meets its positive and only
            the rows of its batch that are allowed to it.
        loss_global: likewise against all N rows.
        loss_random: likewise for the random plans that `Evaluation` compares with.
        gap: loss_global - loss_train.
        gap_reduction: 1 - gap / (loss_global - loss_random), 0 where the latter is 0.
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
    """How good a plan is; docs/metrics.md explains each number to a newcomer.

    Losses, gaps and bounds are in nats, means of both directions. Section and theorem numbers are
    those of GCBS (Sachidananda et al. 2023, Global Selection of Contrastive Batches via
    Optimization on Sample Permutations), and BatchSampler is Yang et al. 2023, BatchSampler:
    Sampling Mini-Batches for Contrastive Learning in Vision, Language, and Graphs. No
    number is infinite or NaN; None is undefined.

    Attributes:
        num_rows: N, rows of the data.
        num_batches: batches of the plan.
        batch_size: k, rows of a full batch.
        partitions_rows: whether the plan holds each row exactly once.
        temperature: tau.
        similarity: ``cosine`` or ``dot``.
        loss_train: NT-Xent loss of the plan's batches (definition 3.2).
        loss_global: the same against all N rows (definition 3.1).
        gap: loss_global - loss_train.
        loss_random, loss_random_std: mean and sample standard deviation of the loss_train of
            random plans.
        random_z: (loss_train - loss_random) / loss_random_std; 0 where both are 0, None where only
            the latter is.
        gap_random: loss_global - loss_random.
        gap_reduction: 1 - gap / gap_random, 0 where gap_random is 0.
        loss_oracle: the loss if each row had its own k - 1 hardest negatives.
        oracle_share: (loss_train - loss_random) / (loss_oracle - loss_random), 1 where the latter
            is 0.
        bound_36, bound_37: upper bounds of the gap (theorems 3.6 and 3.7).
        qap_objective: sum of x_i . y_j + y_i . x_j over the ordered pairs of all batches, the
            diagonal included (theorem 4.2).
        bottleneck: smallest similarity of a negative in a batch (theorem 4.1), None where every
            batch holds one row.
        quantile: share of the off-diagonal similarities that are no edges, as asked for; None
            where neighbours were.
        edges: E, number of edges: the largest off-diagonal similarities (section 5.1).
        bandwidth: largest distance of the two rows of an edge in the plan's order (section 5.2),
            None where the plan holds both rows of no edge.
        edge_recall: share of the edges whose two rows share a batch.
        hard_negative_recall: by m, the share of an entry's m hardest negatives in its batch.
        positive_probability: mean softmax probability of the positive in its batch (appendix D).
        similarity_percentiles: by percent, of the similarities of all negatives in all batches;
            empty where there are none.
        similarity_histogram: by ``edges`` (41), ``plan`` and ``random`` (40 each), the shares of
            those similarities in bins of equal width, for the plan and for the first random plan
            (BatchSampler, figure 4); empty where there are none.
        false_negatives: by ``labels`` and ``group``, those that were given, the in-batch pairs of
            equal labels (BatchSampler, section 5.2).
        guard: the in-batch pairs that are likely false negatives, and the losses without them; None
            unless a guard or groups were given.
        coverage: which rows the plan holds, and how often.
        directions: by ``x_to_y`` and ``y_to_x``, the two sides of the means above.
        computed: by name, the metrics whose rows in `batchplan.quality.metrics.METRICS` have a
            formula of their own; `to_dict` has them beside the others.
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
