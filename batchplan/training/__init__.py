"""Plans of epochs, the sampler of their batches, and the recorder, for training loops.

Only the file of a framework imports it; see docs/frameworks.md.
"""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.training.epochs import EpochPlans
    from batchplan.training.multi_dataset import MultiDatasetPlans
    from batchplan.training.recorder import Recorder
    from batchplan.training.rows import with_rows
    from batchplan.training.sampler import PlanBatchSampler

__all__ = ["EpochPlans", "MultiDatasetPlans", "PlanBatchSampler", "Recorder", "with_rows"]

__getattr__, __dir__ = lazily(__name__, __file__)
