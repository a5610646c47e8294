"""Plan the batches of contrastive training, and measure the plans.

    embeddings = batchplan.load_embeddings("embeddings.parquet")
    plan = batchplan.plan(embeddings, batch_size=64)  # chooses, as a rule "partition"
    classic = batchplan.plan(embeddings, planner="gcbs", batch_size=64)
    print(batchplan.evaluate(plan, embeddings))
    plan.save("plan.npy")

The names below are imported on first use, so that ``import batchplan`` and ``batchplan --help``
stay instant.
"""

from typing import TYPE_CHECKING

from batchplan.errors import BatchplanError, InputError, OutputError, ResourceError
from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.comparison import compare
    from batchplan.data import Candidates, Embeddings, load_embeddings
    from batchplan.embedding import embed, token_embeddings
    from batchplan.planners import mine_negatives, plan
    from batchplan.plans import Plan
    from batchplan.plans.negatives import Negatives
    from batchplan.quality import Evaluation, evaluate, evaluate_candidates, evaluate_negatives
    from batchplan.refinement import refine
    from batchplan.runtime import Runtime

__version__ = "0.1.0"

__all__ = [
    "BatchplanError",
    "Candidates",
    "Embeddings",
    "Evaluation",
    "InputError",
    "Negatives",
    "OutputError",
    "Plan",
    "ResourceError",
    "Runtime",
    "__version__",
    "compare",
    "embed",
    "evaluate",
    "evaluate_candidates",
    "evaluate_negatives",
    "load_embeddings",
    "mine_negatives",
    "plan",
    "refine",
    "token_embeddings",
]

__getattr__, __dir__ = lazily(__name__, __file__)
