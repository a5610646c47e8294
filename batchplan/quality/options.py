"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from batchplan.errors import InputError
from batchplan.graph import EdgeBudget
from batchplan.options import MIN_TEMPERATURE, Similarity, check_options, option

LIMITS = ("relative_margin", "absolute_margin", "max_score")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """What to measure a plan with.

    Attributes:
        temperature: tau of the NT-Xent loss.
        quantile: share of the off-diagonal similarities that are not edges; ``bandwidth`` and
            ``edge_recall`` look at the edges. Ignored when ``neighbors`` is given.
        neighbors: mean edges per row, instead of a quantile.
        similarity: ``cosine`` (normalised rows) or ``dot`` (rows as they are).
        random_trials: number of random plans to compare with.
        relative_margin, absolute_margin, max_score: at most one of them, a limit on the similarity
            of negatives; see `GuardReport`. Pairs beyond it are counted, and the plan is measured
            again without them.

    Raises:
        InputError: a value outside its range, or two limits.
    """

    temperature: float = option(0.05, "tau of the NT-Xent loss.", ge=MIN_TEMPERATURE)
    quantile: float = option(
        0.999, "Share of the off-diagonal similarities that are not edges.", gt=0, lt=1
    )
    neighbors: int | None = option(None, "Mean edges per row, instead of a quantile.", ge=1)
    similarity: Similarity = option(
        "cosine", "cosine normalises the rows, dot takes them as they are."
    )
    random_trials: int = option(
        20, "Random plans to compare with; their standard deviation needs two.", ge=2
    )
    relative_margin: float | None = option(
        None,
        "Also measure without negatives more similar than a share 1 - R of the positive, such as "
        "0.05.",
        lt=1,
    )
    absolute_margin: float | None = option(
        None, "The same for a similarity of the positive - M.", ge=0
    )
    max_score: float | None = option(None, "The same for a similarity of C.")

    def __post_init__(self) -> None:
        check_options(self)
        given = [name for name in LIMITS if getattr(self, name) is not None]
        if len(given) > 1:
            first, second = (name.replace("_", " ") for name in given[:2])
            raise InputError(
                f"{first} {getattr(self, given[0]):g}: given with {second} "
                f"{getattr(self, given[1]):g}, expected at most one limit; leave out "
                f"--{first.replace(' ', '-')} or --{second.replace(' ', '-')}"
            )
        if self.max_score is not None and not isfinite(self.max_score):
            raise InputError(
                f"max score: got {self.max_score}, expected a finite number: the similarity that "
                "negatives must stay below"
            )

    def edge_budget(self) -> EdgeBudget:
        """How many edges the similarity graph has."""
        return EdgeBudget(quantile=self.quantile, neighbors=self.neighbors)

    @property
    def limited(self) -> bool:
        """Whether the guard looks at similarities."""
        return any(getattr(self, name) is not None for name in LIMITS)
