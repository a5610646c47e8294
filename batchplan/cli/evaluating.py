"""The command `evaluate`: measure a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchplan.cli.grouping import grouped
from batchplan.cli.options import (
    BatchSize,
    Computing,
    Inputs,
    Json,
    Labelling,
    PlanFile,
    Reading,
    Speaking,
    print_json,
)
from batchplan.quality import EvaluationOptions
from batchplan.text import one_line

if TYPE_CHECKING:
    from batchplan.quality import Evaluation, FalseNegatives, GuardReport


@grouped
def evaluate(
    plan: PlanFile,
    embeddings: Inputs,
    options: EvaluationOptions,
    labelling: Labelling,
    reading: Reading,
    running: Computing,
    speaking: Speaking,
    batch_size: BatchSize = None,
    json: Json = False,
) -> None:
    """Measure a plan against random batches.

    The losses of the plan, of random batches, of all rows at once and of an oracle that gives each
    row its own hardest negatives; docs/metrics.md explains every number. Of a table of negatives:
    the uniform sampling that it takes to see the same negatives.

    \b
    Example:
      batchplan evaluate plan.npy embeddings.parquet --temperature 0.05
    """
    from batchplan.cli.coupons import show_negatives
    from batchplan.plans import Plan
    from batchplan.plans.negatives import is_negatives
    from batchplan.quality import evaluate_plan

    watch = speaking.watch()
    runtime = running.runtime(watch)
    with watch.watching():
        data = reading.load(embeddings, runtime)
        codes, groups = labelling.codes(data)
        if is_negatives(plan):
            named = {labelling.labels: codes, labelling.group_column: groups}
            return show_negatives(plan, data, batch_size=batch_size, codes=named, json=json)
        made = Plan.load(plan, batch_size=batch_size, num_rows=data.num_rows)
        evaluation = evaluate_plan(made, data, options, runtime, labels=codes, groups=groups)
    evaluation = evaluation.with_columns(**labelling.columns)
    if json:
        print_json(evaluation.to_dict())
    else:
        _show(evaluation, made.metadata.planner or plan)


def _show(evaluation: Evaluation, name: str) -> None:
    """Three short tables: the losses, the plan against random, and where the hard ones are."""
    from rich.table import Table
    from rich.text import Text

    from batchplan.cli.console import facts, print_out

    one = evaluation
    size = f"{one.num_batches:,} batches of {one.batch_size} over {one.num_rows:,} rows"
    settings = f"temperature {one.temperature:g}, {one.similarity}"
    print_out(Text(f"{one_line(name)}: {size}, {settings}"))
    losses = Table(title="loss in nats", title_justify="left", box=None, pad_edge=False)
    for column in ("", "random", "this plan", "oracle", "all rows"):
        losses.add_column(column, justify="right" if column else "left")
    values = (one.loss_random, one.loss_train, one.loss_oracle, one.loss_global)
    losses.add_row("loss", *(f"{value:.4f}" for value in values))
    gaps = [f"{one.loss_global - value:z.4f}" for value in values]
    losses.add_row("gap to all rows", *gaps)
    share = f"{one.oracle_share:z.1%}"
    losses.add_row("share of the way to the oracle", "0.0%", share, "100.0%", "")
    print_out(losses)
    z = "undefined" if one.random_z is None else f"{one.random_z:+.1f}"
    recall = ", ".join(f"{v:.1%} of the {k} hardest" for k, v in one.hard_negative_recall.items())
    percentiles = "  ".join(f"{k}%: {v:.3f}" for k, v in one.similarity_percentiles.items())
    print_out(
        facts(
            [
                ("gap reduction", f"{one.gap_reduction:z.1%} of the gap of random batches"),
                ("against random", f"z = {z} (standard deviation {one.loss_random_std:.4f})"),
                ("bounds of the gap", f"{one.bound_36:.3f} (3.6)  {one.bound_37:.3f} (3.7)"),
                ("edges inside batches", f"{one.edge_recall:.1%} of {one.edges:,}"),
                ("bandwidth", _or_none(one.bandwidth, ",")),
                ("hard negatives in batch", recall),
                ("probability of the positive", f"{one.positive_probability:.4f}"),
                ("in-batch similarity", percentiles),
                ("bottleneck similarity", _or_none(one.bottleneck, ".4f")),
                ("QAP objective", f"{one.qap_objective:,.1f}"),
                *(_false_negatives(found) for found in one.false_negatives.values()),
                *([] if one.guard is None else _guard(one.guard)),
                *([] if one.partitions_rows else [_coverage(one)]),
                ("each row once", "yes" if one.partitions_rows else "no"),
            ]
        )
    )


def _false_negatives(found: FalseNegatives) -> tuple[str, str]:
    if found.rate is None:
        return "false negatives", f"undefined by {found.column}"
    by_chance = f"the {_percent(found.rate_random)} of random batches"
    times = "beside" if found.ratio is None else f"{found.ratio:.2f} times"
    return "false negatives", f"{_percent(found.rate)} by {found.column}, {times} {by_chance}"


def _guard(found: GuardReport) -> list[tuple[str, str]]:
    by_chance = f"{_percent(found.broken_share_random)} at random"
    share = "undefined" if found.broken_share is None else _percent(found.broken_share)
    reasons = ", ".join(f"{count:,} by {reason}" for reason, count in found.by.items())
    reduction = f"{found.gap_reduction:z.1%} (loss {found.loss_train:.4f})"
    return [
        (
            "pairs that break the guard",
            f"{found.broken:,} of {found.pairs:,} ({share}, {by_chance})",
        ),
        ("why they break it", f"{reasons}; {found.rows_affected:,} rows"),
        ("gap reduction without them", reduction),
    ]


def _percent(share: float) -> str:
    """Three digits of a share that may be tiny: among many groups few pairs are of one."""
    return f"{100 * share:.3g}%"


def _coverage(one: Evaluation) -> tuple[str, str]:
    found = one.coverage
    often = f"{found.repeats:,} repeats, none more than {found.most_repeated:,} times"
    return "rows in the plan", f"{found.rows_seen:,} ({found.share_seen:.1%}), {often}"


def _or_none(value: float | None, style: str) -> str:
    return "undefined" if value is None else format(value, style)
