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
    from batchplan.quality import Evaluation

# The metrics that the table of losses shows.
_IN_TABLE = "loss_random", "loss_train", "loss_oracle", "loss_global", "gap", "oracle_share"


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
    """A table of the losses, then a line for each other metric."""
    from rich.table import Table
    from rich.text import Text

    from batchplan.cli.console import facts, print_out
    from batchplan.quality.metrics import METRICS, texts

    one, text = evaluation, texts(evaluation)
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
    losses.add_row(METRICS["oracle_share"].label, "0.0%", text["oracle_share"], "100.0%", "")
    print_out(losses)
    told = {*_IN_TABLE, *(["coverage.rows_seen"] if one.partitions_rows else [])}
    print_out(facts((METRICS[key].label, said) for key, said in text.items() if key not in told))
