"""The command `evaluate`: measure a plan, or a table of negatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from batchplan.cli.grouping import grouped
from batchplan.cli.options import BATCH_SIZE, EVERYTHING, JSON, Inputs, ListMeasuring, PlanFile
from batchplan.cli.output import print_json
from batchplan.errors import InputError
from batchplan.text import one_line

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Negatives
    from batchplan.quality import Evaluation, ListedEvaluation
    from batchplan.quality.evaluation import MinedReport
    from batchplan.quality.verdict import Verdict

# The metrics that the table of losses shows.
_IN_TABLE = "loss_random", "loss_train", "loss_oracle", "loss_global", "gap", "oracle_share"

_ASKED = "false_negatives", "guard.mined.false"  # what only columns of the user tell
_MORE = (
    "The gap is the rise in loss from random batches to one batch of all rows. --all shows all "
    "figures."
)
_SHOWN = 3  # false mined negatives; JSON has more
Facts = Iterator[tuple[str, str]]


@grouped
def evaluate(
    *,
    plan: PlanFile,
    embeddings: Inputs = None,  # type: ignore[assignment]  # with --candidates
    measuring: ListMeasuring,
    batch_size: int | None = BATCH_SIZE,
    everything: bool = EVERYTHING,
    json: bool = JSON,
) -> None:
    """Measure a plan, and say what it is worth.

    Compares the loss of the plan with random batches, with all rows at once, and with an oracle
    that gives each row its hardest negatives. The verdict leaves out likely false negatives. For a
    table of negatives, shows how many rows it uses and how many negatives have the label of their
    anchor.
    docs/metrics.md explains every number.

    \b
    Example:
      batchplan evaluate plan.npy embeddings.parquet --temperature 0.05
    """
    from batchplan import plans, quality
    from batchplan.cli.console import print_facts
    from batchplan.plans.formats.negatives import is_negatives

    labelling = measuring.labelling
    if measuring.session.candidates is not None:
        return _evaluate_lists(plan, embeddings or [], measuring, batch_size, json=json)
    with measuring.session.opened(embeddings or []) as (data, runtime, _):
        labels, groups = labelling.codes(data)
        if is_negatives(plan):
            table = plans.Negatives.load(plan)
            codes = {labelling.label_column: labels, labelling.group_column: groups}
            figures = _figures(table, data, codes)
        else:
            batches = plans.Plan.load(plan, batch_size=batch_size, num_rows=data.num_rows)
            (evaluation,) = quality.evaluate_plans(
                [batches], data, measuring.options, runtime, labels=labels, groups=groups
            )
            evaluation = evaluation.with_columns(**labelling.columns)
            judged = quality.verdict_on(evaluation)
            table = None
            figures = {**evaluation.to_dict(), "verdict": judged.to_dict()}
    if json:
        print_json(figures)
    elif table is not None:
        print_facts(_table_facts(table, figures, data.num_rows))
    else:
        _show(evaluation, judged, batches.metadata.planner or plan, everything=everything)


def _evaluate_lists(
    plan: str,
    embeddings: list[str],
    measuring: ListMeasuring,
    batch_size: int | None,
    *,
    json: bool,
) -> None:
    """What lists of candidates tell of a plan."""
    from batchplan import plans, quality
    from batchplan.cli.console import print_facts

    if measuring.labelling.label_column or measuring.labelling.group_column:
        raise InputError(
            "candidates: given with a column of labels or groups, which are counted with vectors "
            "only; leave it out"
        )
    with measuring.session.opened(embeddings) as (data, runtime, _):
        batches = plans.Plan.load(plan, batch_size=batch_size, num_rows=data.num_rows)
        found = quality.evaluate_lists(batches, data, measuring.options, runtime)
    if json:
        print_json(found.to_dict())
    else:
        print_facts(_listed_facts(found))


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


def _show(evaluation: Evaluation, judged: Verdict, name: str, *, everything: bool) -> None:
    """The verdict and what it follows from; with ``everything`` all metrics below."""
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
    """A table of the losses, and a line for each of the other metrics."""
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
            # Of the gap to the oracle, both parts are estimates.
            f"{gaps[2]:z.4f}" if evaluation.sample is None else "",
            f"{gaps[3]:z.4f}",
        ],
        [share, "0.0%", text["oracle_share"], "100.0%", ""],
    ]
    print_table(rows, left=[0])
    in_table = {*_IN_TABLE, *(["coverage.rows_seen"] if evaluation.partitions_rows else [])}
    print_facts((METRICS[key].label, value) for key, value in text.items() if key not in in_table)


def _false_negatives(mined: MinedReport) -> Facts:
    """The worst mined negatives, to look at."""
    worst = [
        f"row {one.row}, negative {one.negative}: {one.similarity:.3f}, own pair {one.positive:.3f}"
        for one in mined.examples[:_SHOWN]
    ]
    if worst:
        yield "the most similar of them", "\n".join(worst)


def _verdict_facts(judged: Verdict) -> Facts:
    """The verdict on a plan as facts, the sentence first."""
    yield "verdict", judged.sentence
    for warning in judged.warnings:
        yield "warning", warning
    for aspect in judged.aspects:
        yield aspect.name, str(aspect)
    yield "guard", judged.guard


def _figures(table: Negatives, data: Embeddings, codes: dict[str | None, Any]) -> dict[str, Any]:
    """The size of a table of negatives, and the share of false ones by each column of ``codes``:
    those that have the code of their anchor."""
    import numpy as np

    table.require_match(data.num_rows, data.fingerprint)
    if table.num_documents > data.num_rows:
        raise InputError(
            f"{table.metadata.planner}: the table has negatives of a corpus, which have no labels "
            "here; evaluate a table that was mined without --corpus"
        )
    shares = {}
    for column, code in codes.items():
        if column and code is not None:
            own = code[table.anchors][:, None]
            same = (code[table.negatives] == own) & (own >= 0)
            shares[column] = float(same.mean())
    return {
        "planner": table.metadata.planner,
        "anchors": len(table),
        "negatives_per_anchor": table.per_anchor,
        "rows_used": len(np.unique(table.negatives)),
        "false_negatives": shares,
    }


def _table_facts(table: Negatives, figures: dict[str, Any], num_rows: int) -> Facts:
    yield "negatives", f"{table.per_anchor} for each of {len(table):,} rows"
    yield "rows that are negatives", f"{figures['rows_used']:,} of {num_rows:,}"
    for name, share in figures["false_negatives"].items():
        yield f"same {name}", f"{share:.2%} of the negatives"
