"""How good a plan is: metrics that share no code with the planners."""

from batchplan.quality.evaluate import evaluate, evaluate_plan
from batchplan.quality.evaluation import Direction, Evaluation
from batchplan.quality.options import EvaluationOptions

__all__ = [
    "Direction",
    "Evaluation",
    "EvaluationOptions",
    "evaluate",
    "evaluate_plan",
]
