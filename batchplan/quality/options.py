"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from batchplan.errors import InputError
from batchplan.graph import EdgeBudget
from batchplan.options import check_options, option, temperature_option


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
        max_similarity: count the pairs of a batch that are as similar as this share, above 0, of
            either row's own positive, and measure without them; see `GuardReport`.
        margin: likewise those as similar as either row's own positive less this, 0 or more.

    Raises:
        InputError: a value outside its range.
    """

    temperature: float = temperature_option()
    quantile: float = option(0.999, "Share of the off-diagonal similarities that are no edges.")
    neighbors: int | None = option(None, "Mean edges a row, instead of a quantile.")
    similarity: Literal["cosine", "dot"] = option(
        "cosine", "cosine normalises the rows, dot takes them as they are."
    )
    random_trials: int = option(20, "Random plans to compare with, at least 2.")
    max_similarity: float | None = option(
        None,
        "Count pairs as similar as this share of either's own pair, and measure without them, "
        "such as 0.95.",
    )
    margin: float | None = option(None, "Likewise those as similar as either's own pair less this.")

    def __post_init__(self) -> None:
        check_options(self)
        if self.random_trials < 2:
            raise InputError(
                f"random trials: got {self.random_trials}, expected at least 2 "
                "(a standard deviation needs two)"
            )
        self._check_guard()
        self.edge_budget()

    def edge_budget(self) -> EdgeBudget:
        """How many edges the similarity graph has.

        Raises:
            InputError: the quantile or the neighbours are out of range.
        """
        return EdgeBudget(quantile=self.quantile, neighbors=self.neighbors)

    @property
    def limited(self) -> bool:
        """Whether the guard looks at similarities."""
        return self.max_similarity is not None or self.margin is not None

    def _check_guard(self) -> None:
        share, margin = self.max_similarity, self.margin
        if share is not None and margin is not None:
            raise InputError(
                f"max similarity {share:g}: given with margin {margin:g}, expected one of the two; "
                "leave out --max-similarity or --margin"
            )
        if share is not None and not (isfinite(share) and share > 0):
            raise InputError(
                f"max similarity: got {share}, expected a finite number above 0: a share of the "
                "similarity of a row's own positive (0.95 is common)"
            )
        if margin is not None and not (isfinite(margin) and margin >= 0):
            raise InputError(
                f"margin: got {margin}, expected a finite number of 0 or more: how far below the "
                "similarity of a row's own positive others must stay (0.05 is common)"
            )
