"""Says in words whether to train on a plan, and which of several: by hardness among true negatives,
the share of false ones, coverage and freshness."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import hypot
from typing import Any, NamedTuple

from batchplan.expectation import objection
from batchplan.plans import Plan
from batchplan.quality.coverage import Coverage, coverage
from batchplan.quality.evaluation import Evaluation, GuardReport
from batchplan.quality.gain import Gain
from batchplan.quality.guard.limits import limit_in_words
from batchplan.quality.metrics import METRICS, cells, percent

_RISKY = 2.0  # times as many likely false negatives as in random batches
_FEW = 0.025  # of the pairs: the default guard left up to 2.1%, no guard 2.8% and more
_LUCK = 2.0  # standard deviations of random plans


class Aspect(NamedTuple):
    """One side of a verdict.

    Attributes:
        name: ``hardness``, ``false negatives``, ``coverage`` or ``freshness``.
        figure: of the plan; empty if the words need none.
        words: what the figure is, and the figure of random batches.
        good: whether it speaks for training on the plan.
    """

    name: str
    figure: str
    words: str
    good: bool

    def __str__(self) -> str:
        """The figure and the words."""
        return f"{self.figure} {self.words}".strip()


@dataclass(frozen=True)
class Verdict:
    """What the figures of a plan mean for training.

    Attributes:
        train: whether its batches are harder than random ones among true negatives, without many
            more likely false ones.
        sentence: whether to train on it, and why.
        aspects: the four sides that decide.
        guard: which pairs count as likely false negatives, and where the limit comes from.
        warnings: what to look at first.
    """

    train: bool
    sentence: str
    aspects: tuple[Aspect, ...]
    guard: str
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, with the aspects by name."""
        aspects = {
            aspect.name.replace(" ", "_"): {"text": str(aspect), "good": aspect.good}
            for aspect in self.aspects
        }
        return {**asdict(self), "aspects": aspects, "warnings": list(self.warnings)}


class Choice(NamedTuple):
    """The plan to train on, of several.

    Attributes:
        plan: its place in what was compared; None if none is worth it.
        sentence: which, and why.
        guard: which pairs count as likely false negatives for all plans, and which plans were made
            with another limit; None without plans.
    """

    plan: int | None
    sentence: str
    guard: str | None


def is_harder(above: float, random_std: float = 0.0) -> bool:
    """Return whether a plan is harder than random batches, by how far its loss among true negatives
    is above theirs, and the standard deviation of theirs."""
    return above > _LUCK * random_std


def is_risky(share: float, random: float) -> bool:
    """Return whether likely false negatives have too large a share of the pairs of a plan, by that
    of random batches."""
    return share > max(_FEW, _RISKY * random)


def risk_in_words(random: float) -> str:
    """Say what the share of likely false negatives is, in the plan and in random batches."""
    return f"of pairs are likely false negatives (random {percent(random)})"


def verdict_on(evaluation: Evaluation) -> Verdict:
    """Return the verdict on a plan; the same figures give the same words."""
    hard, risk, occur, riskier = _deciding(evaluation)
    return Verdict(
        train=hard.good and risk.good,
        sentence=_sentence(hard, risk, occur, riskier, evaluation.batch_size),
        aspects=(hard, risk, occur, _freshness(evaluation)),
        guard=guard_in_words(evaluation.guard),
        warnings=tuple(_warnings(evaluation, risk)),
    )


def sentence_on(plan: Plan, gain: Gain) -> str:
    """Return the sentence of the verdict on a new plan, from some of its batches.

    It says the rise of the loss in nats; the share of the gap would need a pass over all rows.
    """
    random = gain.random
    above = round(gain.plan.loss - random.loss, 9) or 0.0  # of the same batches, but for rounding
    words = "nats above the loss of random batches" + " among true negatives" * gain.guarded
    noise = hypot(gain.plan.loss_error, random.loss_error)
    hard = Aspect("hardness", f"its loss is {above:.2g}", words, is_harder(above, noise))
    risk = _risk_of(
        *([gain.plan.false_negatives, random.false_negatives] if gain.guarded else [None, 0])
    )
    occur = _coverage(plan.metadata.partitions_rows, coverage(plan.rows, plan.metadata.num_rows))
    riskier = gain.plan.false_negatives > random.false_negatives
    return _sentence(hard, risk, occur, riskier, plan.batch_size)


def ranking(evaluations: Sequence[Evaluation]) -> list[int]:
    """Return the places of plans, hardest first; ties keep their order."""
    return sorted(range(len(evaluations)), key=lambda at: -evaluations[at].hardness)


def choose(
    names: Sequence[str], limits: Sequence[str], evaluations: Sequence[Evaluation]
) -> Choice:
    """Choose the plan to train on: the hardest whose verdict is to train.

    Args:
        names: of the plans, as the sentences call them.
        limits: which each was planned with, in words; empty for none.
        evaluations: of the same data, by the same guard.
    """
    judge = _judge(names, limits, evaluations[0].guard) if evaluations else None
    order = ranking(evaluations)
    verdicts = [verdict_on(evaluation) for evaluation in evaluations]
    fit = [at for at in order if verdicts[at].train]
    if not fit:
        return Choice(
            None,
            "train on none of these: none is harder than random batches among true negatives "
            "without many more false ones",
            judge,
        )
    best = fit[0]
    reasons = _reasons(*_deciding(evaluations[best]), evaluations[best].batch_size)
    said = f"train on {names[best]}, because {reasons}"
    for at in order[: order.index(best)]:
        said += f"; not on {names[at]}, of which {verdicts[at].aspects[1]}"
    if fit[1:]:
        said += f"; next is {names[fit[1]]}, of which {verdicts[fit[1]].aspects[0]}"
    return Choice(best, said, judge)


def guard_in_words(guard: GuardReport | None) -> str:
    """Describe which pairs count as likely false negatives, and where the limit comes from."""
    if guard is None:
        return "none, all pairs count"
    if not (limit := limit_in_words(vars(guard))):
        return "groups and equal rows only"
    if guard.limit_from == "rejected":
        excluded = percent(guard.false_negatives_random)
        return f"none, all pairs count, since the default would exclude {excluded} of all rows"
    whose = {"options": "", "plans": ", as planned", "default": ", the default"}[guard.limit_from]
    return limit + " by the reference" * (guard.reference is not None) + whose


def _judge(names: Sequence[str], limits: Sequence[str], guard: GuardReport | None) -> str:
    """Describe the guard that judges several plans, and name the plans made with another limit."""
    said = guard_in_words(guard)
    used = "" if guard is None else limit_in_words(vars(guard))
    others = [
        f"{name} with {limit or 'none'}"
        for name, limit in zip(names, limits, strict=True)
        if limit != used
    ]
    return f"{said}, for all plans; planned {', '.join(others)}" if others else said


def _deciding(evaluation: Evaluation) -> tuple[Aspect, Aspect, Aspect, bool]:
    """Return hardness, false negatives and coverage, and whether the share of false negatives is
    above the share in random batches."""
    share, judge = evaluation.false_negatives, evaluation.judge
    random = 0.0 if judge is None else judge.false_negatives_random
    occur = _coverage(evaluation.partitions_rows, evaluation.coverage)
    return _hardness(evaluation), _risk_of(share, random), occur, (share or 0.0) > random


def _sentence(hard: Aspect, risk: Aspect, occur: Aspect, riskier: bool, batch_size: int) -> str:
    if not hard.good:
        return f"random batches would do as well: {hard}, {risk}"
    if not risk.good:
        return f"plan again with a guard before you train: {risk}, {hard}"
    return f"train on this one, because {_reasons(hard, risk, occur, riskier, batch_size)}"


def _reasons(hard: Aspect, risk: Aspect, occur: Aspect, riskier: bool, batch_size: int) -> str:
    said = f"{hard} and {occur}" if riskier else f"{hard}, {risk}, and {occur}"
    against = [str(risk)] * riskier + [objection(batch_size)]
    but = " and ".join(filter(None, against))
    return f"{said}, although {but}" if but else said


def _hardness(evaluation: Evaluation) -> Aspect:
    document = evaluation.to_dict()
    figure, random = cells(document, METRICS["hardness"])
    which = evaluation.judge or evaluation
    above = which.loss_train - which.loss_random
    among = "all" if evaluation.judge is None else "true"
    said = f"of the gap is closed among {among} negatives (random {random})"
    # Without a gap, what is above is rounding.
    harder = evaluation.hardness != 0 and is_harder(above, evaluation.loss_random_std)
    return Aspect("hardness", figure, said, harder)


def _risk_of(share: float | None, random: float) -> Aspect:
    name = "false negatives"
    if share is None:
        return Aspect(name, "an unknown share", "of pairs is likely false", True)
    return Aspect(name, percent(share), risk_in_words(random), not is_risky(share, random))


def _coverage(partitions_rows: bool, seen: Coverage) -> Aspect:
    if partitions_rows:
        return Aspect("coverage", "", "each row occurs once", True)
    repeats = f", with {seen.repeats:,} repeats" if seen.repeats else ""
    return Aspect("coverage", percent(seen.share_seen), f"of the rows occur{repeats}", False)


def _freshness(evaluation: Evaluation) -> Aspect:
    said = "planned from these embeddings" if evaluation.fresh else "planned from unknown ones"
    return Aspect("freshness", "", said, evaluation.fresh)


def _warnings(evaluation: Evaluation, risk: Aspect) -> Iterator[str]:
    guard = evaluation.guard
    if not risk.good:
        yield f"{risk}: training pushes away rows that belong together; plan with a guard"
    yield from unlike_planned(evaluation)
    # others exclude no rows
    if guard is not None and guard.limit_from in ("options", "plans") and guard.excludes_much:
        yield excludes_much(guard.false_negatives_random, evaluation.num_rows)
    if not evaluation.fresh:
        yield "nothing says from which embeddings this was planned; old plans miss what is hard now"
    if missing := evaluation.coverage.rows_never_seen:
        yield f"{missing:,} of {evaluation.num_rows:,} rows are in no batch"


def unlike_planned(evaluation: Evaluation) -> Iterator[str]:
    """Warn if a plan was made with a reference, groups or known answers, but is judged without
    them."""
    guard, answers = evaluation.guard, evaluation.answers
    if answers is not None and answers.planned_with:
        yield (
            f"the plan was made with {' '.join(answers.planned_with)}, but known answers are "
            "judged without; give the same options again"
        )
    if guard is None:
        return
    if guard.planned_reference is not None and guard.reference is None:
        yield (
            "the plan was made with a reference, but its guard is judged by these embeddings; name "
            "it again with --reference"
        )
    if guard.without_groups:
        yield (
            "the plan separates groups, but its guard is judged without them; name their column "
            "again with --group-column"
        )


def excludes_much(share: float, num_rows: int) -> str:
    """Return the warning that a guard excludes a large share of all rows from each row."""
    return (
        f"the guard excludes {percent(share)} of all rows from each row on average "
        f"({share * num_rows:,.0f} of {num_rows:,}), true negatives among them; look at pairs near "
        "the limit, or choose a milder one (batchplan inspect)"
    )
