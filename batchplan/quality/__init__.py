"""Measures how good a plan is, with formulas that share no code with the planners."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.quality.coupons import NegativesEvaluation as NegativesEvaluation
    from batchplan.quality.coupons import evaluate_negatives as evaluate_negatives
    from batchplan.quality.evaluation import Evaluation as Evaluation
    from batchplan.quality.facts import RowFacts as RowFacts
    from batchplan.quality.listed import ListedEvaluation as ListedEvaluation
    from batchplan.quality.listed import evaluate_candidates as evaluate_candidates
    from batchplan.quality.measure import evaluate as evaluate
    from batchplan.quality.measure import evaluate_plans as evaluate_plans
    from batchplan.quality.options import EvaluationOptions as EvaluationOptions
    from batchplan.quality.verdict import verdict_on as verdict_on

__getattr__, __dir__ = lazily(__name__, __file__)
