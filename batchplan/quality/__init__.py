"""How good a plan is: metrics that share no code with the planners.

The names load what they need when first used: options are checked without torch.
"""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.quality.evaluation import Direction, Evaluation
    from batchplan.quality.false_negatives import FalseNegatives
    from batchplan.quality.guard import GuardReport
    from batchplan.quality.measure import evaluate, evaluate_plan, evaluate_plans
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
    "evaluate_plans",
]

__getattr__ = lazily(
    __name__,
    {
        "Coverage": "batchplan.quality.occurrence",
        "Direction": "batchplan.quality.evaluation",
        "Evaluation": "batchplan.quality.evaluation",
        "EvaluationOptions": "batchplan.quality.options",
        "FalseNegatives": "batchplan.quality.false_negatives",
        "GuardReport": "batchplan.quality.guard",
        "evaluate": "batchplan.quality.measure",
        "evaluate_plan": "batchplan.quality.measure",
        "evaluate_plans": "batchplan.quality.measure",
    },
)
