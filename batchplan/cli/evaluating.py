"""The command `evaluate`: measure a plan, or a table of negatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from batchplan.cli.grouping import grouped
from batchplan.cli.options import (
    BATCH_SIZE,
    JSON,
    Inputs,
    ListMeasuring,
    Measuring,
    PlanFile,
)
from batchplan.cli.output import print_json
from batchplan.errors import InputError
from batchplan.options import option
from batchplan.text import one_line

if TYPE_CHECKING:  # these load numpy
    from batchplan.data import Candidates, Embeddings
    from batchplan.plans import Negatives
    from batchplan.quality import Evaluation, ListedEvaluation
    from batchplan.quality.evaluation import MinedReport
    from batchplan.quality.verdict import Verdict
    from batchplan.runtime import Runtime

# The metrics that the table of losses shows.
_IN_TABLE = "loss_random", "loss_train", "loss_oracle", "loss_global", "gap", "oracle_share"

_ASKED = "false_negatives", "guard.mined.false"  # figures of columns that the user names
_MORE = (
    "The gap is the rise in loss from random batches to one batch of all rows. --all shows all "
    "figures."
)
_SHOWN = 3  # mined negatives that are likely false; JSON has more
Facts = Iterator[tuple[str, str]]
Measured = tuple[dict[str, Any], Callable[[bool], None]]  # for JSON; and prints it for people


@grouped
def evaluate(
    *,
    plan: PlanFile,
    embeddings: Inputs = None,  # type: ignore[assignment]  # with --candidates
    measuring: ListMeasuring,
    batch_size: int | None = BATCH_SIZE,
    everything: bool = option(False, "Show all metrics.", "--all"),
    json: bool = JSON,
) -> None:
    """Measure a plan, and say whether to train on it.

    Compares the loss with that of random batches, of all rows at once, and of an oracle that gives
    each row its hardest negatives. The verdict leaves out likely false negatives. For a table of
    negatives, counts its rows and the negatives with the label of their anchor. docs/metrics.md
    explains every number.

    \b
    Example:
      batchplan evaluate plan.npy embeddings.parquet --temperature 0.05
    """
    from batchplan.plans.formats.negatives import is_negatives

    if measuring.session.candidates is not None and any(measuring.labelling.columns.values()):
        raise InputError(
            "candidates: given with a column of labels or groups, which need vectors; leave it out"
        )
    with measuring.session.opened(embeddings or []) as (data, runtime, _):
        work: Callable[..., Measured]
        if measuring.session.candidates is not None:
            work = _measure_with_lists
        else:
            work = _measure_table if is_negatives(plan) else _measure
        figures, show = work(plan, data, measuring, batch_size, runtime)
    if json:
        print_json(figures)
    else:
        show(everything)


def _measure(
    path: str, data: Embeddings, measuring: Measuring, batch_size: int | None, runtime: Runtime
) -> Measured:
    """Measure a plan."""
    from batchplan import plans, quality

    labels, groups = measuring.labelling.codes(data)
    plan = plans.Plan.load(path, batch_size=batch_size, num_rows=data.num_rows)
    (evaluation,) = quality.evaluate_plans(
        [plan], data, measuring.options, runtime, labels=labels, groups=groups
    )
    evaluation = evaluation.with_columns(**measuring.labelling.columns)
    judged = quality.verdict_on(evaluation)
    show = partial(_show, evaluation, judged, plan.metadata.planner or path)
    return {**evaluation.to_dict(), "verdict": judged.to_dict()}, show


def _measure_with_lists(
    path: str, data: Candidates, measuring: Measuring, batch_size: int | None, runtime: Runtime
) -> Measured:
    """Measure a plan by lists of candidates."""
    from batchplan import plans, quality
    from batchplan.cli.console import print_facts

    plan = plans.Plan.load(path, batch_size=batch_size, num_rows=data.num_rows)
    found = quality.evaluate_lists(plan, data, measuring.options, runtime)
    return found.to_dict(), lambda _: print_facts(_listed_facts(found))


def _measure_table(
    path: str, data: Embeddings, measuring: Measuring, _: int | None, _runtime: Runtime
) -> Measured:
    """Measure a table of negatives: its size, and, for each column of labels or groups, the share
    of false negatives, which have the code of their anchor."""
    import numpy as np

    from batchplan import plans
    from batchplan.cli.console import print_facts

    names = measuring.labelling.columns.values()
    codes = dict(zip(names, measuring.labelling.codes(data), strict=True))
    table = plans.Negatives.load(path)
    table.require_match(data.num_rows, data.fingerprint)
    shares = {}
    for column, code in codes.items():
        if column and code is not None:
            own = code[table.anchors][:, None]
            same = (code[table.negatives] == own) & (own >= 0)
            shares[column] = float(same.mean())
    figures = {
        "planner": table.metadata.planner,
        "anchors": len(table),
        "negatives_per_anchor": table.per_anchor,
        "rows_used": len(np.unique(table.negatives)),
        "false_negatives": shares,
    }
    return figures, lambda _: print_facts(_table_facts(table, figures, data.num_rows))


def _listed_facts(found: ListedEvaluation) -> Facts:
    from batchplan.quality.metrics import percent

    size = f"{found.num_batches:,} batches of {found.batch_size}"
    yield "plan", f"{size} over {found.num_rows:,} rows, temperature {found.temperature:g}"
    yield "loss, x to y", f"{found.loss_train:.4f} (at least {found.loss_train_least:.4f})"
    yield (
        "loss, random batches",
        f"{found.loss_random:.4f} (at least {found.loss_random_least:.4f})",
    )
    yield "loss, oracle", f"{found.loss_oracle:.4f}"
    yield "share of the way to the oracle", f"{found.oracle_share:.1%}"
    recalls = found.hard_negative_recall
    yield (
        "hard negatives in batch",
        f"{recalls['1']:.1%} of the 1 hardest, {recalls['10']:.1%} of the 10 hardest",
    )
    yield "in-batch pairs that are listed", percent(found.listed_share)
    if found.broken is not None:
        random = f"{found.broken_random or 0.0:,.1f} at random"
        yield "pairs that break the guard", f"{found.broken:,} listed ones ({random})"
    seen = found.coverage
    yield "rows in the plan", f"{seen.rows_seen:,} ({seen.share_seen:.1%})"
    yield "unknown without vectors", "loss of all rows and the gap, y to x, percentiles"


def _show(evaluation: Evaluation, judged: Verdict, name: str, everything: bool) -> None:
    """The verdict and its reasons; with ``everything`` all metrics below."""
    from rich.text import Text

    from batchplan.cli.console import print_facts, print_out
    from batchplan.quality.metrics import METRICS, texts

    text = texts(evaluation)
    batches = f"{evaluation.num_batches:,} batches of {evaluation.batch_size}"
    settings = f"temperature {evaluation.temperature:g}, {evaluation.similarity}"
    print_out(Text(f"{one_line(name)}: {batches} over {evaluation.num_rows:,} rows, {settings}"))
    asked = [key for key in text if key.startswith(_ASKED)]
    shown = [*_verdict_facts(judged), *((METRICS[key].label, text[key]) for key in asked)]
    if evaluation.guard is not None and evaluation.guard.mined is not None:
        shown += _false_negatives(evaluation.guard.mined)
    print_facts(shown)
    print_out(Text())
    if everything:
        _show_others(evaluation, {key: text[key] for key in text if key not in asked})
    else:
        print_out(Text(_MORE))


def _show_others(evaluation: Evaluation, text: dict[str, str]) -> None:
    """A table of the losses, and a line for every other metric."""
    from rich.text import Text

    from batchplan.cli.console import print_facts, print_out, print_table
    from batchplan.quality.metrics import METRICS, basis, text_of

    print_out(Text("; ".join(filter(None, ("loss in nats", basis(evaluation)))), "italic"))
    names = _IN_TABLE[:4]
    gaps = [evaluation.loss_global - getattr(evaluation, name) for name in names]
    share = METRICS["oracle_share"].label
    rows: list[list[str | Text]] = [
        [Text(head, "bold") for head in ("", "random", "this plan", "oracle", "all rows")],
        ["loss", *(text_of(evaluation, name, ".4f") for name in names)],
        [
            "gap to all rows",
            *(text_of(evaluation, name, "z.4f") for name in ("gap_random", "gap")),
            # With a sample, both parts of the gap to the oracle are estimates.
            f"{gaps[2]:z.4f}" if evaluation.sample is None else "",
            f"{gaps[3]:z.4f}",
        ],
        [share, "0.0%", text["oracle_share"], "100.0%", ""],
    ]
    print_table(rows, left=[0])
    in_table = {*_IN_TABLE, *(["coverage.rows_seen"] if evaluation.partitions_rows else [])}
    print_facts((METRICS[key].label, value) for key, value in text.items() if key not in in_table)


def _false_negatives(mined: MinedReport) -> Facts:
    """The mined negatives that are most likely false."""
    worst = [
        f"row {one.row}, negative {one.negative}: {one.similarity:.3f}, own pair {one.positive:.3f}"
        for one in mined.examples[:_SHOWN]
    ]
    if worst:
        yield "the most similar of them", "\n".join(worst)


def _verdict_facts(judged: Verdict) -> Facts:
    """The verdict on a plan as facts, its sentence first."""
    yield "verdict", judged.sentence
    for warning in judged.warnings:
        yield "warning", warning
    for aspect in judged.aspects:
        yield aspect.name, str(aspect)
    yield "guard", judged.guard


def _table_facts(table: Negatives, figures: dict[str, Any], num_rows: int) -> Facts:
    yield "negatives", f"{table.per_anchor} for each of {len(table):,} rows"
    yield "rows that are negatives", f"{figures['rows_used']:,} of {num_rows:,}"
    for name, share in figures["false_negatives"].items():
        yield f"same {name}", f"{share:.2%} of the negatives"
