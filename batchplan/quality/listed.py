"""Measures a plan by lists of candidates: which of them share a batch with their row."""

from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np

from batchplan.data import Candidates
from batchplan.keywords import EvaluationKeywords
from batchplan.options import LIMITS, with_options
from batchplan.plans import Plan
from batchplan.quality.coverage import Coverage, coverage
from batchplan.quality.guard.limits import ceilings_of, with_limit
from batchplan.quality.measured import RECALLED
from batchplan.quality.options import EvaluationOptions

_TIE = 1e-7  # scores are float32: those this close to a ceiling reach it


@dataclass(frozen=True, kw_only=True)
class ListedEvaluation:
    """How good a plan is by lists of candidates. A row that occurs again counts in its last batch.

    Attributes:
        num_rows, num_batches, batch_size: of the plan.
        hard_negative_recall: by ``1`` and ``10``, the share of each row's first candidates that are
            in its batch.
        listed_share: share of the ordered in-batch pairs that are listed.
        limit: the limit of the guard, by its name; empty without one.
        broken: in-batch pairs that break it by a listed score; None without a limit.
        coverage: how often the plan has each row.
    """

    num_rows: int
    num_batches: int
    batch_size: int
    hard_negative_recall: dict[str, float]
    listed_share: float
    limit: dict[str, float]
    broken: int | None
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


@with_options(EvaluationOptions)
def evaluate_candidates(
    plan: Plan, candidates: Candidates, **options: Unpack[EvaluationKeywords]
) -> ListedEvaluation:
    """Measure a plan by lists of candidates.

    Args:
        plan: a plan of these candidates, or of as many rows in the same order.
        candidates: mined lists.
        options: fields of `EvaluationOptions`; only the limit of the guard does something.

    Raises:
        InputError: an option out of range, or a plan of other data.
    """
    n, others = candidates.num_rows, candidates.indices
    plan.require_match(n, None)
    plan.metadata.require_ids(candidates)
    settings, _ = with_limit([plan], EvaluationOptions(**options))
    batch_of = np.full(n, -1)
    batch_of[plan.rows] = plan.batch_of_entry()
    sizes = np.bincount(batch_of[batch_of >= 0])
    rows = np.repeat(np.arange(n), np.diff(candidates.indptr))
    planned, rank = batch_of[rows] >= 0, np.arange(len(rows)) - candidates.indptr[rows]
    same = planned & (batch_of[others] == batch_of[rows])
    broken = None
    if settings.limited:
        ceilings = ceilings_of(candidates.positive.astype(np.float64), settings) - _TIE
        near = same & (candidates.scores >= np.minimum(ceilings[rows], ceilings[others]))
        pairs = np.sort((rows[near], others[near]), axis=0)  # a pair may be listed twice
        broken = np.unique(pairs, axis=1).shape[1]
    return ListedEvaluation(
        num_rows=n,
        num_batches=plan.num_batches,
        batch_size=plan.batch_size,
        hard_negative_recall={
            str(m): float(same[rank < m].sum() / max(1, planned[rank < m].sum())) for m in RECALLED
        },
        listed_share=float(same.sum() / max(1, sizes @ (sizes - 1))),
        limit={name: value for name in LIMITS if (value := getattr(settings, name)) is not None},
        broken=broken,
        coverage=coverage(plan.rows, n),
    )
