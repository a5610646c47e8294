"""The lines of the table: ways to make batches, and the losses they are used with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RATES = 5e-5, 1e-4, 2e-4, 4e-4  # of batches of 64; larger ones try higher rates
RATE_ROWS = 2_560  # that choose the rate of batches of 64; larger ones need all rows for it


@dataclass(frozen=True)
class Line:
    """A way to train.

    Attributes:
        text: what the table says.
        loss: a name in `runs.LOSSES`.
        batch_size: rows of a batch.
        mined: what finds a negative for each row, a name in `runs.MINERS`.
        planner: by `PlannedEpochs`; None for shuffled batches.
        plan: options of `PlannedEpochs`. Swaps of `partition` have 4 passes, the default of when
            most runs were made.
        arguments: of the loss.
        of_domain: arguments of the loss by domain, instead of those.
        no_duplicates: with the library's sampler of that name.
        trained: whether it trains at all.
        reference: what tells the guard which negatives are false, a name in `vectors.VECTORS`, of
            the model before training.
        rates_of: the line whose learning rate it takes, as its batches are as hard.
        parts: mega-batches of the plans of epochs in turn; None for the default, 0 for random
            batches.
        vectors: what the plan is made from, a name in `vectors.VECTORS`; in half an epoch, what
            predicts its vectors, a name in `vectors.PREDICTORS`. None for the default.
        order: of the batches of a planned half, a name in `runs.ORDERS`; None for a random one.
        later_strength: the `hardness_strength` of the loss in the second half of the steps.
        keep: share of the rows that are trained on, those with the most similar pairs by the model
            before training.
    """

    text: str
    loss: str = "mnrl"
    batch_size: int = 64
    mined: str | None = None
    planner: str | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    of_domain: dict[str, dict[str, Any]] = field(default_factory=dict)
    no_duplicates: bool = False
    trained: bool = True
    reference: str | None = None
    rates_of: str | None = None
    parts: tuple[int | None, ...] = ()
    vectors: str | None = None
    order: str | None = None
    later_strength: float | None = None
    keep: float = 1.0

    @property
    def rates(self) -> list[float]:
        """Learning rates to choose from: as many times higher as the root of the batch size."""
        return (
            [0.0] if not self.trained else [rate * (self.batch_size / 64) ** 0.5 for rate in RATES]
        )


FREE = {"embeddings": "training", "random_epochs": 0}
LATER = {**FREE, "random_epochs": 1}  # the default: no epoch needs a pass over the data
HALF = {"embeddings": "training", "random_epochs": None}  # of one epoch, half is random
UNGUARDED = {**LATER, "guard": False, "mega_batches": 1}  # for losses that mask instead
GIST = {"temperature": 0.05, "margin_strategy": "relative", "margin": 0.05}
GIST_PAIRS = {**GIST, "contrast_anchors": False, "contrast_positives": False}
SHARP, SOFT = {"scale": 1 / 0.03}, {"scale": 1 / 0.08}  # the library's default is τ = 0.05
HARDNESS = {"hardness_mode": "in_batch_negatives", "hardness_strength": 9.0}
MILD = {**HARDNESS, "hardness_strength": 4.0}  # for plans, whose negatives are hard already


def _lever(text: str, planner: str = "partition", **more: Any) -> Line:
    """A line of one epoch with `hardness_mode`, of the strength that is best on the domain."""
    return Line(text, planner=planner, arguments=MILD, of_domain={"gloss": HARDNESS},
                rates_of="hardness", **more)  # fmt: skip


def _half(text: str, planner: str = "partition", **more: Any) -> Line:
    """A lever whose first half is random."""
    return _lever(text, planner, plan={**HALF, **more.pop("plan", {})}, **more)


def _whole(text: str, vectors: str, planner: str = "partition", **more: Any) -> Line:
    """A lever planned whole from vectors of the model before it."""
    return _lever(text, planner, plan={**FREE, **more.pop("plan", {})}, vectors=vectors, **more)


STRICT = {"relative_margin": 0.2}
FRESH = {"embeddings": "fresh", "random_epochs": 0.5}

LEVERS = {
    "pass-hardness-4": _half("the rest embedded by the model", plan=FRESH),
    "half-distilled": _half("predicted from a distilled table", vectors="distilled"),
    "half-layer-1": _half("predicted from the first layer", vectors="layer-1"),
    "half-layers-2": _half("predicted from the first two layers", vectors="layers-2"),
    "half-b3-hardness-4": _half("`b3` from the same vectors, `hardness_mode`", "b3"),
    "half-strict": _half("guard at 80%", plan=STRICT),
    "hard-last": _half("hard batches last", order="rising"),
    "hard-first": _half("hard batches first", order="falling"),
    "near-in-time": _half("near batches after each other", order="near"),
    "far-in-time": _half("near batches far apart", order="far"),
    "half-strengths": Line("strength 9 in the random half, 4 in the planned one",
                           planner="partition", plan=HALF, arguments=HARDNESS, later_strength=4.0,
                           rates_of="hardness"),
    "soft-hardness": Line("shuffled, τ = 0.08, `hardness_mode`", arguments={**SOFT, **HARDNESS},
                          rates_of="hardness"),
    "half-soft": Line("τ = 0.08, strength 9", planner="partition", plan=HALF,
                      arguments={**SOFT, **HARDNESS}, rates_of="hardness"),
    "keep-0.9": _half("the 90% of the rows with the most similar pairs", keep=0.9),
    "keep-0.8": _half("the 80% of the rows with the most similar pairs", keep=0.8),
    "whole-distilled": _whole("a distilled table", "distilled"),
    "whole-layer-1": _whole("the first layer", "layer-1"),
    "whole-layers-2": _whole("the first two layers", "layers-2"),
    "whole-tokens-16": _whole("the first 16 tokens of each text", "tokens-16"),
    "whole-pass": _whole("a pass of the model", "pass"),
    "table-1": _whole("the table of tokens, 1 mega-batch", "table", plan={"mega_batches": 1}),
    "table-2": _whole("the table of tokens, 2 mega-batches", "table", plan={"mega_batches": 2}),
    "table-4": _whole("the table of tokens, 4 mega-batches", "table", plan={"mega_batches": 4}),
    "table-8": _whole("the table of tokens, 8 mega-batches", "table", plan={"mega_batches": 8}),
    "table-strict": _whole("the table of tokens, guard at 80%", "table", plan=STRICT),
    "table-judged": _whole("the table of tokens, guard also by the first layer", "table",
                           reference="layer-1"),
    "table-b3": _whole("the table of tokens, `b3`", "table", "b3"),
}  # fmt: skip

LINES = {
    "untrained": Line("before training", trained=False),
    "shuffled": Line("shuffled"),
    "no-duplicates": Line("shuffled, `NO_DUPLICATES`", no_duplicates=True),
    "planned-later": Line("**planned** (the default)", planner="partition", plan=LATER),
    "planned": Line("planned from the first epoch", planner="partition", plan=FREE),
    "planned-half": Line("**planned** (the default)", planner="partition", plan=HALF,
                         rates_of="shuffled"),
    "planned-half-1": Line("the same, 1 mega-batch", planner="partition",
                           plan={**HALF, "mega_batches": 1}, rates_of="shuffled"),
    "planned-pass": Line("the same, but the other half embedded by the model", planner="partition",
                         plan={"embeddings": "fresh", "random_epochs": 0.5}, rates_of="shuffled"),
    "planned-third": Line("the same, but a third is random", planner="partition",
                          plan={**HALF, "random_epochs": 1 / 3}, rates_of="shuffled"),
    "half-b3": Line("`b3`, from the same vectors", planner="b3", plan=HALF, rates_of="shuffled"),
    "planned-table": Line("planned whole from the table of tokens", planner="partition", plan=FREE,
                          vectors="table", rates_of="shuffled"),
    "planned-first": Line("planned, the first epoch only", planner="partition",
                          plan={**FREE, "planned_epochs": 1}, rates_of="planned-later"),
    "planned-fresh": Line("planned, fresh embeddings", planner="partition",
                          plan={**LATER, "embeddings": "fresh"}, rates_of="planned-later"),
    "planned-second": Line("planned, every second epoch", planner="partition",
                           plan=FREE, rates_of="planned-later", parts=(0, None)),
    "planned-rising": Line("planned, 4 mega-batches, then 1", planner="partition", plan=FREE,
                           rates_of="planned-later", parts=(4, 1)),
    "planned-falling": Line("planned, 1 mega-batch, then 4", planner="partition", plan=FREE,
                            rates_of="planned-later", parts=(1, 4)),
    "planned-1": Line("planned, 1 mega-batch", planner="partition",
                      plan={**LATER, "mega_batches": 1}, rates_of="planned-later"),
    "planned-2": Line("planned, 2 mega-batches", planner="partition",
                      plan={**LATER, "mega_batches": 2}, rates_of="planned-later"),
    "planned-swaps-1": Line("planned, one pass of swaps", planner="partition",
                            plan={**LATER, "refine": 1}, rates_of="planned-later"),
    "planned-strict": Line("planned, guard at 80%", planner="partition",
                           plan={**LATER, "relative_margin": 0.2}, rates_of="planned-later"),
    "planned-reference": Line("planned, guard by the model before training", planner="partition",
                              plan=LATER, reference="pass", rates_of="planned-later"),
    "gcbs": Line("`gcbs`", planner="gcbs", plan=LATER, rates_of="planned-later"),
    "b3": Line("`b3`", planner="b3", plan=LATER, rates_of="planned-later"),
    "grit": Line("`chain` (GRIT)", planner="chain", plan=LATER, rates_of="planned-later"),
    "rwr": Line("`rwr` from the first epoch", planner="rwr", plan=FREE, rates_of="planned-later"),
    "rwr-once": Line("`rwr --coverage partition`", planner="rwr",
                     plan={**LATER, "coverage": "partition"}, rates_of="planned-later"),
    "bcs": Line("`bcs`", planner="bcs", plan=LATER, rates_of="planned-later"),
    "bcs-random": Line("`bcs`, half of the rows random", planner="bcs",
                       plan={**LATER, "random_fraction": 0.5}, rates_of="planned-later"),
    "scb": Line("`scb`", planner="scb", plan=LATER, rates_of="planned-later"),
    "scb-random": Line("`scb`, half of the rows random", planner="scb",
                       plan={**LATER, "random_fraction": 0.5}, rates_of="planned-later"),
    "osgd": Line("`osgd` from the first epoch", planner="osgd", plan=FREE,
                 rates_of="planned-later"),
    "cached-256": Line("cached, B = 256", "cached", 256),
    "cached-1024": Line("cached, B = 1,024", "cached", 1024),
    "planned-cached-256": Line("planned, cached, B = 256", "cached", 256, planner="partition",
                               plan=LATER, rates_of="cached-256"),
    "planned-cached-1024": Line("planned, cached, B = 1,024", "cached", 1024, planner="partition",
                                plan=LATER, rates_of="cached-1024"),
    "b3-cached-1024": Line("`b3`, cached, B = 1,024", "cached", 1024, planner="b3", plan=LATER,
                           rates_of="cached-1024"),
    "cached-1024-hardness": Line("cached, B = 1,024, `hardness_mode`", "cached", 1024,
                                 arguments=HARDNESS, rates_of="cached-1024"),
    "planned-cached-256-hardness": Line("planned, cached, B = 256, `hardness_mode`, strength 4",
                                        "cached", 256, planner="partition", plan=LATER,
                                        arguments=MILD, rates_of="cached-256"),
    "planned-cached-1024-hardness": Line("planned, cached, B = 1,024, `hardness_mode`, strength 4",
                                         "cached", 1024, planner="partition", plan=LATER,
                                         arguments=MILD, rates_of="cached-1024"),
    "mined": Line("shuffled, a mined negative a row", mined="library"),
    "planned-mined": Line("**planned**, a mined negative a row", mined="library",
                          planner="partition", plan=LATER),
    "scns": Line("shuffled, a negative a row drawn by `scns`", mined="scns", rates_of="mined"),
    "gist": Line("shuffled, GIST", "gist", arguments=GIST),
    "cached-gist": Line("cached GIST, B = 256", "cached-gist", 256, arguments=GIST,
                        rates_of="cached-256"),
    "planned-masks": Line("**planned** without a guard, GIST", "gist", planner="partition",
                         plan=UNGUARDED, arguments=GIST),
    "gist-sharp": Line("shuffled, GIST, τ = 0.01", "gist", arguments={**GIST, "temperature": 0.01}),
    "gist-pairs": Line("shuffled, GIST without negatives of the own side", "gist",
                       arguments=GIST_PAIRS),
    "planned-pairs": Line("planned without a guard, GIST without negatives of the own side", "gist",
                          planner="partition", plan=UNGUARDED, arguments=GIST_PAIRS),
    "hardness": Line("shuffled, `hardness_mode`", arguments=HARDNESS),
    "planned-hardness": Line("**planned**, `hardness_mode`", planner="partition", plan=LATER,
                             arguments=HARDNESS),
    "hardness-4": Line("shuffled, `hardness_mode`, strength 4", arguments=MILD),
    "planned-hardness-4": Line("**planned**, `hardness_mode`, strength 4", planner="partition",
                               plan=LATER, arguments=MILD),
    "half-hardness": Line("**planned**, `hardness_mode`", planner="partition", plan=HALF,
                          arguments=HARDNESS, rates_of="hardness"),
    "half-hardness-4": Line("**planned**, `hardness_mode`, strength 4", planner="partition",
                            plan=HALF, arguments=MILD, rates_of="hardness"),
    "half-hardness-2": Line("planned, `hardness_mode`, strength 2", planner="partition",
                            plan=HALF, arguments={**HARDNESS, "hardness_strength": 2.0},
                            rates_of="hardness"),
    "table-hardness-4": Line("planned whole from the table of tokens, `hardness_mode`, strength 4",
                             planner="partition", plan=FREE, arguments=MILD, vectors="table",
                             rates_of="hardness"),
    "mined-hardness-4": Line("shuffled, a mined negative a row, `hardness_mode`, strength 4",
                             mined="library", arguments=MILD),
    "planned-mined-hardness-4": Line("planned, a mined negative a row, `hardness_mode`, strength 4",
                                     mined="library", planner="partition", plan=LATER,
                                     arguments=MILD),
    "sharp": Line("shuffled, τ = 0.03", arguments=SHARP),
    "planned-sharp": Line("planned, τ = 0.03", planner="partition", plan=LATER, arguments=SHARP),
    "soft": Line("shuffled, τ = 0.08", arguments=SOFT),
    "planned-soft": Line("**planned**, τ = 0.08", planner="partition", plan=LATER, arguments=SOFT),
    **LEVERS,
}  # fmt: skip
