"""The lines of the bench: ways to make batches, and the losses they are used with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

STRONG, MILD = ({"hardness_mode": "in_batch_negatives", "hardness_strength": strength}
                for strength in (9.0, 4.0))  # fmt: skip
FRESH = {"embeddings": "fresh"}  # a pass of the model before each plan


@dataclass(frozen=True)
class Line:
    """A way to train.

    Attributes:
        text: what the table says.
        base: the line without a plan that it is compared with, besides ``shuffled``.
        planner: of `EpochPlans`, None for random batches.
        plan: its options that are no defaults of `PlannedEpochs`.
        loss: arguments of MultipleNegativesRankingLoss.
        separate: whether random batches keep known answers apart, by `NoKnownAnswers`.
    """

    text: str
    planner: str | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    separate: bool = False
    base: str = "shuffled"


LINES = {
    "shuffled": Line("shuffled"),
    "no-known": Line("shuffled, `NoKnownAnswers`", separate=True),
    "hardness": Line("shuffled, `hardness_mode`", loss=STRONG),
    "planned": Line("**planned** (the default)", "partition"),
    "planned-fresh": Line("planned, fresh embeddings", "partition", FRESH),
    "planned-hardness": Line("**planned**, `hardness_mode`", "partition", loss=STRONG,
                             base="hardness"),
    "planned-mild": Line("planned, `hardness_mode` of strength 4", "partition", loss=MILD,
                         base="hardness"),
    "fresh-hardness": Line("planned, fresh embeddings, `hardness_mode`", "partition", FRESH, STRONG,
                           base="hardness"),
    "gcbs": Line("`gcbs`", "gcbs"),
    "b3": Line("`b3`", "b3"),
}  # fmt: skip
