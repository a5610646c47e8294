"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batchplan.checks import check_options, check_temperature
from batchplan.errors import InputError
from batchplan.graph import EdgeBudget


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
        check_temperature(self.temperature)
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
