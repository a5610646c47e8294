"""Batches -> better batches: swaps that raise the loss and keep apart what must not meet."""

from batchplan.refinement.objective import Objective, make_objective
from batchplan.refinement.refine import Passes, Refined, refine_rows
from batchplan.refinement.repair import repair_rows

__all__ = ["Objective", "Passes", "Refined", "make_objective", "refine_rows", "repair_rows"]
