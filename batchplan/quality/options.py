"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from batchplan.checks import check_options
from batchplan.errors import InputError
from batchplan.graph import EdgeBudget

MIN_TEMPERATURE = 1e-6  # below it float32 similarities over the temperature are only noise


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """What to measure a plan with.

    Attributes:
        temperature: tau of the NT-Xent loss, finite, at least 1e-6.
        quantile: share of the off-diagonal similarities that are no edges, in (0, 1); the edges
            are what ``bandwidth`` and ``edge_recall`` look at. Ignored when ``neighbors`` is given.
        neighbors: mean edges a row instead of a quantile.
        similarity: ``cosine`` (rows are normalised) or ``dot`` (rows as they are).
        random_trials: random plans to compare with, at least 2 (they give a standard deviation).

    Raises:
        InputError: a value outside its range.
    """

    temperature: float = 0.05
    quantile: float = 0.999
    neighbors: int | None = None
    similarity: Literal["cosine", "dot"] = "cosine"
    random_trials: int = 20

    def __post_init__(self) -> None:
        check_options(self)
        if not isfinite(self.temperature) or self.temperature < MIN_TEMPERATURE:
            raise InputError(
                f"temperature: got {self.temperature}, expected a finite number of at least "
                f"{MIN_TEMPERATURE:g} (0.05 is common)"
            )
        if self.random_trials < 2:
            raise InputError(
                f"random trials: got {self.random_trials}, expected at least 2 "
                "(a standard deviation needs two)"
            )
        self.edge_budget()

    def edge_budget(self) -> EdgeBudget:
        """How many edges the similarity graph has.

        Raises:
            InputError: the quantile or the neighbours are out of range.
        """
        return EdgeBudget(quantile=self.quantile, neighbors=self.neighbors)
