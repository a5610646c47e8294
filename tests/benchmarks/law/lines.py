"""The lines of the bench: ways to make batches, and the losses they are used with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

STRONG, MILD = ({"hardness_mode": "in_batch_negatives", "hardness_strength": strength}
                for strength in (9.0, 4.0))  # fmt: skip
FRESH = {"embeddings": "fresh"}  # a pass of the model before each plan


@dataclass(frozen=True)
class Line:
    """A way to train.

    Attributes:
        text: what the table says.
        base: the line that it is compared with, besides ``shuffled``; it has no plan, unless this
            one differs from the default by an option.
        planner: of `EpochPlans`, None for random batches.
        plan: its options that are no defaults of `PlannedEpochs`.
        loss: arguments of MultipleNegativesRankingLoss.
        joined: rows of planned batches of which several random ones make a batch; None if a plan
            has whole batches.
        shared: further documents per row, from the second epoch on, which are negatives of all
            anchors of the batch: as B3++ draws them if there is a planner, or random ones.
        sampler: what makes batches without a planner.
        dimensions: of the vectors that plans are made from, the first ones; None for all.
        crossing: whether plans know which answers of an anchor are documents of other rows; else
            only rows with an equal text are in different batches.
    """

    text: str
    planner: str | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    sampler: Literal["shuffled", "NO_DUPLICATES", "NoKnownAnswers"] = "shuffled"
    dimensions: int | None = None
    crossing: bool = True
    joined: int | None = None
    shared: int = 0
    base: str = "shuffled"


LINES = {
    "shuffled": Line("shuffled"),
    "no-known": Line("shuffled, `NoKnownAnswers`", sampler="NoKnownAnswers"),
    "no-duplicates": Line("shuffled, `NO_DUPLICATES`", sampler="NO_DUPLICATES"),
    "hardness": Line("shuffled, `hardness_mode`", loss=STRONG),
    "planned": Line("**planned** (the default)", "partition"),
    "planned-equal": Line("planned, without known answers", "partition", crossing=False),
    "planned-fresh": Line("planned, fresh embeddings", "partition", FRESH),
    "planned-hardness": Line("**planned**, `hardness_mode`", "partition", loss=STRONG,
                             base="hardness"),
    "planned-mild": Line("planned, `hardness_mode` of strength 4", "partition", loss=MILD,
                         base="hardness"),
    "fresh-hardness": Line("planned, fresh embeddings, `hardness_mode`", "partition", FRESH, STRONG,
                           base="hardness"),
    "gcbs": Line("`gcbs`", "gcbs"),
    "b3": Line("`b3`", "b3"),
    "shared-random": Line("shuffled, 5 random documents more a row", shared=5),
    "shared": Line("planned, 5 documents more a row (B3++)", "partition", shared=5,
                   base="planned"),
    "b3-shared": Line("`b3`, 5 documents more a row (B3++)", "b3", shared=5),
    "joined": Line("planned batches of 32, joined at random", "partition", joined=32),
    "joined-hardness": Line("planned batches of 32, joined at random, `hardness_mode`", "partition",
                            loss=STRONG, joined=32, base="hardness"),
    **{f"mega-{count}": Line(f"planned, {count} mega-batch{'es' * (count > 1)}", "partition",
                             {"mega_batches": count}) for count in (1, 4, 8, 32)},
    **{f"tau-{tau}": Line(f"planned with τ = {tau}", "partition", {"temperature": tau})
       for tau in (0.03, 0.08)},
    **{f"guard-{100 - share}": Line(f"planned, guard at {100 - share}%", "partition",
                                    {"relative_margin": share / 100}) for share in (0, 20)},
    "refine-0": Line("planned without swaps", "partition", {"refine": 0}, base="planned"),
    "refine-4": Line("planned with four passes of swaps", "partition", {"refine": 4},
                     base="planned"),
    "every-2": Line("planned, two epochs share a plan", "partition",
                    {"every": 2, "random_epochs": 2}, base="planned"),
    "dimensions-32": Line("planned from 32 of 128 dimensions", "partition", dimensions=32,
                          base="planned"),
    **{f"penalty-{nats}": Line(f"planned with a penalty of {nats} nats", "partition",
                               {"guard_penalty": nats}, base="planned")
       for nats in (0.01, 0.03, 0.06)},
}  # fmt: skip
CHOICES = [
    name
    for name, line in LINES.items()
    if line.planner
    and line.crossing
    and line.base == "shuffled"
    and not (line.loss or line.joined or line.shared or line.dimensions)
]
