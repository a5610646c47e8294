"""The commands that measure: `evaluate` a plan, `inspect` embeddings or a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from batchplan.cli import options as shared
from batchplan.cli.text import one_line
from batchplan.errors import InputError

if TYPE_CHECKING:
    from batchplan.quality import Evaluation, FalseNegatives, GuardReport


def evaluate(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Plan file of any format.")],
    embeddings: shared.Inputs,
    temperature: Annotated[float, typer.Option(help="tau of the NT-Xent loss.")] = 0.05,
    quantile: Annotated[
        float, typer.Option(help="Share of the off-diagonal similarities that are no edges.")
    ] = 0.999,
    neighbors: Annotated[
        int | None, typer.Option(help="Mean edges a row, instead of a quantile.")
    ] = None,
    similarity: Annotated[
        Literal["cosine", "dot"],
        typer.Option(help="cosine normalises the rows, dot takes them as they are."),
    ] = "cosine",
    random_trials: Annotated[
        int, typer.Option(help="Random plans to compare with, at least 2.")
    ] = 20,
    max_similarity: Annotated[
        float | None,
        typer.Option(
            help="Count pairs as similar as this share of either's own pair, and measure without "
            "them, such as 0.95."
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="Likewise those as similar as either's own pair less this."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of classes: negatives of the same class are counted as false ones.",
        ),
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of groups, which are counted likewise; pairs of one are too similar.",
        ),
    ] = None,
    label_table: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Parquet of these columns, a row for each row of the data.  [default: EMBEDDINGS]",
        ),
    ] = None,
    batch_size: shared.BatchSize = None,
    pair: shared.Pair = None,
    x_column: shared.XColumn = None,
    y_column: shared.YColumn = None,
    id_column: shared.IdColumn = None,
    cast: shared.Cast = False,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    memory: shared.Memory = None,
    json: shared.Json = False,
    quiet: shared.Quiet = False,
    verbose: shared.Verbose = False,
) -> None:
    """Measure a plan against random batches.

    The losses of the plan, of random batches, of all rows at once and of an oracle that gives each
    row its own hardest negatives; docs/metrics.md explains every number. Of a table of negatives:
    the uniform sampling that it takes to see the same negatives.

    \b
    Example:
      batchplan evaluate plan.npy embeddings.parquet --temperature 0.05
    """
    from batchplan.cli.console import Watch
    from batchplan.cli.coupons import show_negatives
    from batchplan.data import load_labels
    from batchplan.plans import Plan
    from batchplan.plans.negatives import is_negatives
    from batchplan.quality import EvaluationOptions, evaluate_plan

    if label_table is not None and labels is None and group_column is None:
        raise InputError("label table: given without --labels or --group-column; name a column")
    options = EvaluationOptions(
        temperature=temperature,
        quantile=quantile,
        neighbors=neighbors,
        similarity=similarity,
        random_trials=random_trials,
        max_similarity=max_similarity,
        margin=margin,
    )
    watch = Watch(quiet=quiet, verbose=verbose)
    runtime = shared.make_runtime(device, memory, seed, watch)
    with watch.watching():
        data = shared.read(
            runtime, embeddings, pair,
            x_column=x_column, y_column=y_column, id_column=id_column, cast=cast,
        )  # fmt: skip
        codes, groups = (
            None if column is None else load_labels(column, data, label_table)
            for column in (labels, group_column)
        )
        if is_negatives(plan):
            return show_negatives(
                plan, data, batch_size=batch_size, codes={labels: codes, group_column: groups},
                json=json,
            )  # fmt: skip
        made = Plan.load(plan, batch_size=batch_size, num_rows=data.num_rows)
        evaluation = evaluate_plan(made, data, options, runtime, labels=codes, groups=groups)
    evaluation = evaluation.with_columns(labels=labels, group=group_column)
    if json:
        shared.print_json(evaluation.to_dict())
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


def inspect(
    embeddings: shared.Inputs,
    similarity: Annotated[
        Literal["cosine", "dot"],
        typer.Option(help="cosine normalises the rows, dot takes them as they are."),
    ] = "cosine",
    batch_size: shared.BatchSize = None,
    pair: shared.Pair = None,
    x_column: shared.XColumn = None,
    y_column: shared.YColumn = None,
    id_column: shared.IdColumn = None,
    cast: shared.Cast = False,
    seed: shared.Seed = 0,
    memory: shared.Memory = None,
    json: shared.Json = False,
    quiet: shared.Quiet = False,
    verbose: shared.Verbose = False,
) -> None:
    """Show what embeddings, or a plan, hold.

    Of embeddings: shards, shape, lengths of rows, and how similar positives and random negatives
    are. Of a plan file: how it was made, and for which data.

    \b
    Example:
      batchplan inspect embeddings.parquet
    """
    from batchplan.cli.console import Watch, facts, print_out
    from batchplan.plans import Plan, is_plan

    if len(embeddings) == 1 and not pair and (batch_size or is_plan(embeddings[0])):
        plan = Plan.load(embeddings[0], batch_size=batch_size)
        document: dict[str, Any] = plan.metadata.to_dict()
    else:
        from batchplan.data import describe

        watch = Watch(quiet=quiet, verbose=verbose)
        runtime = shared.make_runtime("cpu", memory, seed, watch)
        with watch.watching():
            data = shared.read(
                runtime, embeddings, pair,
                x_column=x_column, y_column=y_column, id_column=id_column, cast=cast,
            )  # fmt: skip
            document = describe(data, runtime, similarity=similarity).to_dict()
    if json:
        shared.print_json(document)
    else:
        if "guards" in document:
            document["guards"] = [_effect(**guard) for guard in document["guards"]]
        print_out(facts((name.replace("_", " "), _plain(v)) for name, v in document.items()))


def _effect(
    max_similarity: float | None, margin: float | None, kept_away: float, rows_affected: float
) -> str:
    guard = f"margin {margin:.2f}" if max_similarity is None else f"share {max_similarity:.2f}"
    return f"{guard}: {kept_away:,.2f} rows kept away from a row, any from {rows_affected:.1%}"


def _plain(value: Any) -> str:
    """A value for people: numbers short, lists a line each, mappings as name and value."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, dict):
        return "  ".join(f"{name}: {_plain(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(_plain(inner) for inner in value) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return one_line(str(value))
