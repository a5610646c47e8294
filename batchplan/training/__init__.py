"""What a training loop imports; nothing here needs more than NumPy."""

from batchplan.training.sampler import PlanBatchSampler

__all__ = ["PlanBatchSampler"]
