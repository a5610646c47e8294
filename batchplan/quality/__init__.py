"""How good a plan is: metrics that share no code with the planners."""

from batchplan.quality.evaluate import evaluate, evaluate_plan
from batchplan.quality.evaluation import Direction, Evaluation
from batchplan.quality.false_negatives import FalseNegatives
from batchplan.quality.guard import GuardReport
from batchplan.quality.occurrence import Coverage
from batchplan.quality.options import EvaluationOptions

__all__ = [
    "Coverage",
    "Direction",
    "Evaluation",
    "EvaluationOptions",
    "FalseNegatives",
    "GuardReport",
    "evaluate",
    "evaluate_plan",
]
