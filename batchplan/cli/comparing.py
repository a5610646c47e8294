"""The command `compare`: plan with several planners, and rank the plans."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import (
    Computing,
    Inputs,
    Json,
    Labelling,
    Reading,
    Speaking,
    print_json,
)
from batchplan.errors import InputError
from batchplan.options import paths_of
from batchplan.quality import EvaluationOptions
from batchplan.text import one_line

if TYPE_CHECKING:
    from batchplan.comparison import Comparison
    from batchplan.comparison.children import Failure
    from batchplan.comparison.ranking import Ranked
    from batchplan.quality import Evaluation

_RESOURCES = 4
_HEADS = {"labels": "same label", "group": "same group"}


@grouped
def compare(
    embeddings: Inputs,
    options: EvaluationOptions,
    labelling: Labelling,
    reading: Reading,
    running: Computing,
    speaking: Speaking,
    planners: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Planners, or tables of --settings, with commas between.  [default: all tables, "
            "or else shuffled,gcbs,rwr,scb,partition]",
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="TOML file of options, a table for each setting."),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", help="Rows in a batch, on each device.")
    ] = 64,
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Keep the plans here, and do not make again what it has."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Plan with several planners and rank the plans.

    Each planner runs as a process of its own; one that fails has its error in the table. The plan
    with the largest gap reduction comes first: over allowed pairs, if a limit or --group-column is
    given. These and --labels only measure; planners have guards of their own.

    In the file of --settings, a table such as [partition], or ["hard"] with planner = "partition",
    holds options of the planner. Batch size, similarity and temperature are those given here where
    a table does not say otherwise; seed, memory and device are the same for all.

    The exit status is 0 if any planner made a plan, else that of the first.

    \b
    Example:
      batchplan compare embeddings.parquet --planners shuffled,gcbs,partition
    """
    from batchplan.comparison import compare as compare_settings
    from batchplan.comparison import read_settings
    from batchplan.comparison.children import flags_of
    from batchplan.comparison.results import check_results

    if folder == "":  # an unset shell variable, which would mean the working directory
        raise InputError("folder: got an empty path, expected the name of one")
    kept = None if folder is None else Path(folder)
    names = None if planners is None else [name.strip() for name in planners.split(",")]
    shared = {
        "batch_size": batch_size,
        "similarity": options.similarity,
        "temperature": options.temperature,
    }
    chosen = read_settings(names, settings, shared)
    read = [*embeddings, *paths_of(reading, labelling), *([settings] if settings else [])]
    if kept is not None:
        check_results(kept, chosen, read)
    arguments = [
        *(flag for group in (reading, running) for flag in flags_of(type(group), _changed(group))),
        *("--", *embeddings),
    ]
    watch = speaking.watch()
    runtime = running.runtime(watch)
    with watch.watching():
        data = reading.load(embeddings, runtime)
        labels, groups = labelling.codes(data)
        found = compare_settings(
            chosen, data, arguments, options, runtime, labels=labels, groups=groups,
            folder=kept, inputs=read,
        )  # fmt: skip
    found = found.with_columns(**labelling.columns)
    if json:
        about = {"num_rows": data.num_rows, "dim": data.dim, "fingerprint": data.fingerprint}
        print_json({**about, "seed": running.seed, **found.to_dict()})
    else:
        _show(found)
    if not found.plans:
        raise typer.Exit(_status(found.failures[0][1]))


def _changed(group: Any) -> dict[str, Any]:
    """The options that were given, by field."""
    values = {field.name: (getattr(group, field.name), field.default) for field in fields(group)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _status(failure: Failure) -> int:
    """What killed a process is nearly always a lack of memory."""
    return failure.status if failure.status > 0 else _RESOURCES


def _show(found: Comparison) -> None:
    """A line a plan, figures below each other; then those that failed, with the reason."""
    from rich.text import Text

    from batchplan.cli.console import print_out

    rows = [_row(place, one) for place, one in enumerate(found.plans, start=1)]
    if len({one.evaluation.batch_size for one in found.plans}) == 1:
        rows.append(_random_row(found.plans[0].evaluation))
    heads = list(rows[0]) if rows else ["rank", "planner"]
    table = [{head: "" if head in ("rank", "note") else head for head in heads}, *rows]
    named = [{"planner": setting.name} for setting, _ in found.failures]
    width = {head: max(len(row.get(head, "")) for row in (*table, *named)) for head in heads}
    lines = ["  ".join(_cell(row, head, width[head]) for head in heads) for row in table]
    for row, (_, failure) in zip(named, found.failures, strict=True):
        cells = (_cell(row, head, width[head]) for head in ("rank", "planner"))
        lines.append("  ".join((*cells, f"failed: {one_line(failure.error)}")))
    # No table of rich, which would cut figures short where the terminal is narrow.
    print_out(Text("\n".join(line.rstrip() for line in lines)))


def _cell(row: dict[str, str], head: str, width: int) -> str:
    text = row.get(head, "")
    return text.ljust(width) if head in ("planner", "note") else text.rjust(width)


def _row(place: int, one: Ranked) -> dict[str, str]:
    """The cells of a plan by the heads of their columns, the score first."""
    from batchplan.runtime import format_bytes

    measured = one.evaluation
    row = {"rank": str(place), "planner": one.setting.name}
    if measured.guard is not None:
        row["allowed"] = f"{measured.guard.gap_reduction:z.1%}"
        row["broken"] = _share(measured.guard.broken_share)
    row["reduction"] = f"{measured.gap_reduction:z.1%}"
    row["oracle"] = f"{measured.oracle_share:z.1%}"
    row["loss"] = f"{measured.loss_train:.4f}"
    for kind, negatives in measured.false_negatives.items():
        row[_HEADS[kind]] = _share(negatives.rate)
    row["seconds"] = f"{one.cost.seconds:.2f}"
    row["memory"] = format_bytes(one.cost.peak_memory_bytes)
    row["note"] = "kept" if one.kept else ""
    return row


def _random_row(measured: Evaluation) -> dict[str, str]:
    """What random batches of the same sizes show."""
    row = {
        "planner": "random batches",
        "reduction": "0.0%",
        "oracle": "0.0%",
        "loss": f"{measured.loss_random:.4f}",
    }
    for kind, negatives in measured.false_negatives.items():
        row[_HEADS[kind]] = _share(negatives.rate_random)
    if measured.guard is not None:
        row["allowed"] = "0.0%"
        row["broken"] = _share(measured.guard.broken_share_random)
    return row


def _share(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2%}"
