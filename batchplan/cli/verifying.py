"""The command `verify-consumption`: checks that training steps saw the batches of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated

import typer

from batchplan.cli.grouping import argument, grouped
from batchplan.cli.options import BATCH_SIZE, JSON
from batchplan.cli.output import print_json
from batchplan.options import option

if TYPE_CHECKING:  # it loads numpy
    from batchplan.consumption import Consumption

_FAILED = 1  # exit status when steps differ

Plans = Annotated[
    list[str], argument("PLAN", "One plan, a plan for each epoch, or the folder of EpochPlans.")
]


@grouped
def verify_consumption(
    plans: Plans,
    trace: str = option(MISSING, "Folder that a Recorder wrote.", kind="path"),
    epochs: int | None = option(
        None, "Epochs to expect.  [default: the epochs of the trace, or of the plans]", ge=1
    ),
    partial: bool = option(False, "Accept that the last steps are missing."),
    label_table: str | None = option(
        None,
        "Parquet file with the ids that the plans name, in the order of the rows, to count known "
        "answers.  [default: as planned]",
        kind="path",
    ),
    known: str | None = option(
        None,
        "Parquet file or qrels with the known answers that the plans name.  [default: as planned]",
        kind="path",
    ),
    id_column: str | None = option(
        None,
        "Column of row ids in the label table, to compare with those that were planned.  "
        "[default: id, if there is one]",
        kind="column",
    ),
    batch_size: int | None = BATCH_SIZE,
    json: bool = JSON,
) -> None:
    """Compare what training saw with plans, and name causes.

    Exits with 0 if each step of each rank saw its batch, else with 1. docs/consumption.md says how
    to record a training, and lists the causes.

    \b
    Example:
      batchplan verify-consumption plan.npy --trace trace
    """
    from batchplan.consumption import Trace, verify
    from batchplan.consumption.plans import read_plans

    verdict = verify(
        read_plans(plans, batch_size=batch_size), Trace(trace), epochs=epochs, partial=partial,
        label_table=label_table, known=known, id_column=id_column,
    )  # fmt: skip
    if json:
        print_json(verdict.to_dict())
    else:
        _show(verdict)
    if not verdict.exact:
        raise typer.Exit(_FAILED)


def _show(verdict: Consumption) -> None:
    from rich.text import Text

    from batchplan.cli.console import facts, print_out

    print_out(Text(verdict.headline, "bold green" if verdict.exact else "bold red"))
    if rows := [*_rows(verdict)]:
        print_out(facts(rows))


def _rows(verdict: Consumption) -> Iterator[tuple[str, str]]:
    from batchplan.consumption.verifying import batch_text

    if verdict.skipped:
        yield "not compared", f"epochs without a plan: {', '.join(map(str, verdict.skipped))}"
    if verdict.known or verdict.unread:
        yield "known answers", str(verdict.known or f"not counted: {verdict.unread}")
    for cause in verdict.findings:
        named = f"{cause.name} ({verdict.where(cause)})"
        yield "cause", f"{named}\n{cause.sentence}\n{verdict.detail(cause)}"
        yield "mend", cause.mend
    if first := verdict.first:
        yield "first", f"epoch {first.epoch}, step {first.step}, rank {first.rank}"
        yield "expected", batch_text(first.expected)
        yield "seen", batch_text(first.seen)
