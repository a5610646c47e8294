"""Measures everything that the pictures and tables of a report show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchplan.data import Embeddings
from batchplan.data.answers import answers_of
from batchplan.data.texts import likely_columns, load_texts
from batchplan.errors import InputError
from batchplan.expectation import forecast
from batchplan.options import LIMITS
from batchplan.plans import Plan
from batchplan.quality import Evaluation, EvaluationOptions, RowFacts, evaluate_plans
from batchplan.quality.guard.limits import limit_in_words, own_limit
from batchplan.quality.known import KnownNegative
from batchplan.quality.losses.in_batches import batch_statistics
from batchplan.quality.pairs import Pairs, beaten_positives, guarded_pairs, unguarded_pairs
from batchplan.quality.references import random_orders
from batchplan.quality.verdict import Choice, Verdict, choose, verdict_on
from batchplan.report.examples import Example, hardest_pairs
from batchplan.report.palette import PLANS
from batchplan.report.rows import ShownRow, shown_rows
from batchplan.report.similarities import Similarities, similarities
from batchplan.runtime import Runtime
from batchplan.text import one_line
from batchplan.typing import Float64Array, Int64Array

_ANSWERS = 4  # rows of a plan that meet known answers as negatives


@dataclass(frozen=True, eq=False)
class PlanContents:
    """What a report shows of a plan."""

    name: str
    plan: Plan
    evaluation: Evaluation
    similarities: Similarities
    examples: list[Example]

    @property
    def verdict(self) -> Verdict:
        """What its figures mean for training."""
        return verdict_on(self.evaluation)

    @property
    def answers(self) -> list[KnownNegative]:
        """The rows that meet the most known answers as negatives."""
        found = self.evaluation.answers
        return [] if found is None else found.examples[:_ANSWERS]

    @property
    def planner(self) -> str:
        """The name of its planner."""
        return self.plan.metadata.planner or "planner unknown"


@dataclass(frozen=True, eq=False)
class ReportContents:
    """What a report shows.

    Attributes:
        plans: in the order given.
        original, shuffled: similarities in the order of the data, and of the first random
            plan that the evaluations compare with.
        embeddings: the data.
        options, seed: of the evaluations.
        texts: of the rows of the examples, of x, of y and of mined negatives; empty without text
            columns.
        columns: the columns of the texts.
        rows: of the hardest batches, if there is one plan.
        expected: what plans gained in similar trainings; empty for rows of one matrix.
    """

    plans: list[PlanContents]
    original: Similarities
    shuffled: Similarities
    embeddings: Embeddings
    options: EvaluationOptions
    seed: int
    texts: Sequence[Mapping[int, str]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[ShownRow] = ()
    expected: str = ""

    @property
    def choice(self) -> Choice:
        """The plan to train on, and why."""
        names = [plan.name for plan in self.plans]
        limits = [limit_in_words(own_limit(plan.plan, self.options)) for plan in self.plans]
        return choose(names, limits, [plan.evaluation for plan in self.plans])

    @property
    def batch_size(self) -> int:
        return self.plans[0].plan.batch_size

    def text(self, side: int, row: int) -> str:
        """Return the text of a row of x (0), y (1) or a mined negative; "" if it is not known."""
        return self.texts[side].get(row, "") if side < len(self.texts) else ""


def gather(
    plans: Mapping[str, Plan],
    embeddings: Embeddings,
    facts: RowFacts,
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    texts: Sequence[str] | None = None,
    text_table: str | None = None,
    asked: Sequence[int] = (),
) -> ReportContents:
    """Measure what a report shows; see `write_report` for the arguments."""
    _check_plans(plans, embeddings, text_table)
    first = next(iter(plans.values()))
    evaluations = evaluate_plans(list(plans.values()), embeddings, facts, options, runtime)
    pairs = unguarded_pairs(embeddings, options.similarity, options.temperature, runtime)
    x, y = pairs.x, pairs.y
    (random_rows,) = random_orders(x.num_rows, first.batch_offsets, 1, runtime)
    whole = np.append(np.arange(0, x.num_rows, first.batch_size), x.num_rows)
    measured = []
    with runtime.stage("report", total=len(plans) + 1) as advance:
        original = similarities(x, y, np.arange(x.num_rows), whole)
        shuffled = similarities(x, y, random_rows, first.batch_offsets)
        advance(1)
        for (name, plan), evaluation in zip(plans.items(), evaluations, strict=True):
            own = batch_losses(pairs, plan.rows, plan.batch_offsets)
            measured.append(
                PlanContents(
                    one_line(name),
                    plan,
                    evaluation,
                    similarities(x, y, plan.rows, plan.batch_offsets),
                    hardest_pairs(x, y, plan.rows, plan.batch_offsets, own),
                )
            )
            advance(1)
    rows: list[ShownRow] = []
    if len(plans) == 1:
        judge = evaluations[0].judge  # its limit is that of the page, or none
        limits: dict[str, Any] = {name: getattr(judge, name, None) for name in LIMITS}
        judging = EvaluationOptions(similarity=options.similarity, **limits)
        guarded = guarded_pairs(pairs, embeddings, facts, judging, runtime)
        answers = facts.answers or answers_of(embeddings, equal=False)
        with runtime.stage("rows", total=pairs.num_rows) as advance:
            rows = shown_rows(guarded, first, own, answers, asked, advance)
    elif asked:
        raise InputError(f"row: got {len(plans)} plans, expected one; make a report of each")
    guard = measured[0].evaluation.guard
    false = [one.row for one in guard.mined.examples] if guard and guard.mined else []
    met = [(example.row, example.negative) for one in measured for example in one.examples]
    met += [(answer.row, answer.other) for one in measured for answer in one.answers]
    anchors = [*(row for row, _ in met), *false, *(one.row for one in rows)]
    others = [other for _, other in met]
    anchors += [other.row for one in rows for other in one.away]
    shown = [anchors, [*anchors, *others]]
    shown += [[*false, *others]] * len(embeddings.negatives)
    if texts is None:
        texts = likely_columns(embeddings, text_table, [facts.group_column])
    named = texts if len(texts) != 1 else [*texts, *texts]
    found = [
        load_texts(
            column, embeddings, np.array(rows, np.int64), text_table,
            "xy" if rows is anchors else "yx",
        )
        if column
        else {}
        for column, rows in zip(named, shown, strict=False)
    ]  # fmt: skip
    expected = ""
    if embeddings.paired:
        beaten = beaten_positives(embeddings, options, runtime)
        expected = forecast(beaten, first.batch_size)
    return ReportContents(
        measured, original, shuffled, embeddings, options, runtime.seed, found, texts, rows,
        expected,
    )  # fmt: skip


def batch_losses(pairs: Pairs, rows: Int64Array, offsets: Int64Array) -> Float64Array:
    """Return the mean NT-Xent loss of each batch, in nats, over both directions.

    Args:
        rows, offsets: as of `batch_statistics`.
    """
    forth, back, _ = batch_statistics(pairs, rows, offsets)
    entries = (forth.losses() + back.losses()) / 2
    return np.add.reduceat(entries, offsets[:-1]) / np.diff(offsets)


def _check_plans(plans: Mapping[str, Plan], embeddings: Embeddings, text_table: str | None) -> None:
    if not 1 <= len(plans) <= len(PLANS):
        raise InputError(
            f"report: got {len(plans)} plans, expected 1 to {len(PLANS)}, as many as colours "
            "can distinguish; make several reports"
        )
    for plan in plans.values():
        plan.metadata.require_order(embeddings.shard_order)
        plan.require_match(embeddings.num_rows, embeddings.fingerprint)
        plan.metadata.require_ids(embeddings, text_table)
    sizes = {name: plan.batch_size for name, plan in plans.items()}
    if len({*sizes.values()}) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(
            f"report: plans of different batch sizes ({listed}): losses in batches of different "
            "sizes cannot be compared; make one report per size"
        )
