"""The command `evaluate`: measure a plan, or a table of negatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from batchplan.cli.grouping import grouped
from batchplan.cli.options import BATCH_SIZE, JSON, Inputs, Measuring, PlanFile
from batchplan.cli.output import print_json
from batchplan.text import one_line

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Negatives
    from batchplan.quality import Evaluation, FalseNegatives, GuardReport

Facts = Iterator[tuple[str, str]]


@grouped
def evaluate(
    plan: PlanFile,
    embeddings: Inputs,
    measuring: Measuring,
    batch_size: int | None = BATCH_SIZE,
    json: bool = JSON,
) -> None:
    """Measure a plan against random batches.

    Compares the loss of the plan with random batches, with all rows at once, and with an oracle
    that gives each row its hardest negatives. For a table of negatives, shows how much uniform
    sampling it would take to see the same negatives. docs/metrics.md explains every number.

    \b
    Example:
      batchplan evaluate plan.npy embeddings.parquet --temperature 0.05
    """
    from batchplan import plans, quality
    from batchplan.cli.console import facts, print_out
    from batchplan.plans.negatives import is_negatives

    labelling = measuring.labelling
    with measuring.session.opened(embeddings) as (data, runtime, _):
        labels, groups = labelling.codes(data)
        if is_negatives(plan):
            table = plans.Negatives.load(plan)
            codes = {labelling.label_column: labels, labelling.group_column: groups}
            figures = _figures(table, data, batch_size, codes)
        else:
            made = plans.Plan.load(plan, batch_size=batch_size, num_rows=data.num_rows)
            evaluation = quality.evaluate_plan(
                made, data, measuring.options, runtime, labels=labels, groups=groups
            ).with_columns(**labelling.columns)
            table, figures = None, evaluation.to_dict()
    if json:
        print_json(figures)
    elif table is not None:
        print_out(facts(_table_facts(table, figures, data.num_rows)))
    else:
        _show(evaluation, made.metadata.planner or plan)


def _show(one: Evaluation, name: str) -> None:
    """The losses, the plan against random batches, and where the hard negatives are."""
    from rich.text import Text

    from batchplan.cli.console import columns, facts, print_out

    size = f"{one.num_batches:,} batches of {one.batch_size} over {one.num_rows:,} rows"
    settings = f"temperature {one.temperature:g}, {one.similarity}"
    print_out(Text(f"{one_line(name)}: {size}, {settings}"))
    print_out(Text("loss in nats", "italic"))
    losses = (one.loss_random, one.loss_train, one.loss_oracle, one.loss_global)
    rows: list[list[str | Text]] = [
        [Text(head, "bold") for head in ("", "random", "this plan", "oracle", "all rows")],
        ["loss", *(f"{loss:.4f}" for loss in losses)],
        ["gap to all rows", *(f"{one.loss_global - loss:z.4f}" for loss in losses)],
        ["share of the way to the oracle", "0.0%", f"{one.oracle_share:z.1%}", "100.0%", ""],
    ]
    print_out(columns(rows, left=[0]))
    print_out(facts(_plan_facts(one)))


def _plan_facts(one: Evaluation) -> Facts:
    z = "undefined" if one.random_z is None else f"{one.random_z:+.1f}"
    recall = ", ".join(f"{v:.1%} of the {k} hardest" for k, v in one.hard_negative_recall.items())
    percentiles = "  ".join(f"{k}%: {v:.3f}" for k, v in one.similarity_percentiles.items())
    yield "gap reduction", f"{one.gap_reduction:z.1%} of the gap of random batches"
    yield "against random", f"z = {z} (standard deviation {one.loss_random_std:.4f})"
    yield "bounds of the gap", f"{one.bound_36:.3f} (3.6)  {one.bound_37:.3f} (3.7)"
    yield "edges inside batches", f"{one.edge_recall:.1%} of {one.edges:,}"
    yield "bandwidth", _or_undefined(one.bandwidth, ",")
    yield "hard negatives in batch", recall
    yield "probability of the positive", f"{one.positive_probability:.4f}"
    yield "in-batch similarity", percentiles
    yield "bottleneck similarity", _or_undefined(one.bottleneck, ".4f")
    yield "QAP objective", f"{one.qap_objective:,.1f}"
    for found in one.false_negatives.values():
        yield "false negatives", _false_negatives(found)
    if one.guard is not None:
        yield from _guard_facts(one.guard)
    if not one.partitions_rows:
        seen = one.coverage
        often = f"{seen.repeats:,} repeats, none more than {seen.most_repeated:,} times"
        yield "rows in the plan", f"{seen.rows_seen:,} ({seen.share_seen:.1%}), {often}"
    yield "each row once", "yes" if one.partitions_rows else "no"


def _false_negatives(found: FalseNegatives) -> str:
    if found.rate is None:
        return f"undefined by {found.column}"
    by_chance = f"the {_percent(found.rate_random)} of random batches"
    times = "beside" if found.ratio is None else f"{found.ratio:.2f} times"
    return f"{_percent(found.rate)} by {found.column}, {times} {by_chance}"


def _guard_facts(found: GuardReport) -> Facts:
    by_chance = f"{_percent(found.broken_share_random)} at random"
    share = "undefined" if found.broken_share is None else _percent(found.broken_share)
    broken = f"{found.broken:,} of {found.pairs:,} ({share}, {by_chance})"
    reasons = ", ".join(f"{count:,} by {reason}" for reason, count in found.by.items())
    reduction = f"{found.gap_reduction:z.1%} (loss {found.loss_train:.4f})"
    yield "pairs that break the guard", broken
    yield "why they break it", f"{reasons}; {found.rows_affected:,} rows"
    yield "gap reduction without them", reduction


def _figures(
    table: Negatives, data: Embeddings, batch_size: int | None, codes: dict[str | None, Any]
) -> dict[str, Any]:
    """The uniform sampling that would show the negatives of a table, and the share of them that
    have the code of their anchor: false negatives by each column of ``codes``."""
    from batchplan.quality.coupons import uniform_draws_to_see

    table.require_match(data.num_rows, data.fingerprint)
    shares = {}
    for column, code in codes.items():
        if column and code is not None:
            own = code[table.anchors][:, None]
            same = (code[table.negatives] == own) & (own >= 0)
            shares[column] = float(same.mean())
    draws = uniform_draws_to_see(table, data.num_rows, batch_size)
    return {"planner": table.metadata.planner, **draws, "false_negatives": shares}


def _table_facts(table: Negatives, figures: dict[str, Any], num_rows: int) -> Facts:
    size = figures["batch_size"]
    yield "negatives", f"{table.per_anchor} for each of {len(table):,} rows"
    yield "rows that are negatives", f"{figures['rows_used']:,} of {num_rows:,}"
    yield "uniform draws to see them", f"{figures['expected_draws']:,.0f} a row"
    yield "uniform batches to see them", f"{figures['expected_batches']:,.1f} of {size} a row"
    yield "uniform epochs to see them", f"{figures['expected_epochs']:,.1f} in batches of {size}"
    for name, share in figures["false_negatives"].items():
        yield f"same {name}", f"{share:.2%} of the negatives"


def _percent(share: float) -> str:
    """Three digits of a share that may be tiny: among many groups few pairs are of one."""
    return f"{100 * share:.3g}%"


def _or_undefined(value: float | None, style: str) -> str:
    return "undefined" if value is None else format(value, style)
