"""The command `compare`: plan with several planners, and rank the plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import JSON, Inputs, Measuring
from batchplan.cli.output import print_json
from batchplan.errors import InputError, ResourceError
from batchplan.options import option
from batchplan.text import one_line

if TYPE_CHECKING:  # these would load the measures
    from batchplan.comparison import Comparison
    from batchplan.comparison.ranking import Ranked
    from batchplan.quality import Evaluation

_HEADS = {"labels": "same label", "group": "same group"}


@grouped
def compare(
    embeddings: Inputs,
    measuring: Measuring,
    planners: str | None = option(
        None,
        "Planners, or tables of --settings, separated by commas.  [default: all tables, or "
        "shuffled,gcbs,rwr,scb,partition]",
        metavar="NAMES",
    ),
    settings: str | None = option(
        None, "TOML file of options, a table for each setting.", kind="path"
    ),
    batch_size: int = option(64, "Rows in a batch, on each device.", "--batch-size", "-b", ge=2),
    folder: str | None = option(
        None, "Keep the plans here, and reuse those that are here already.", metavar="FOLDER"
    ),
    json: bool = JSON,
) -> None:
    """Plan with several planners and rank the plans.

    Each planner runs in a process of its own; if one fails, the table shows its error. The plan
    with the largest gap reduction comes first: over allowed pairs, if a limit or --group-column is
    given. These and --label-column only measure; planners have guards of their own.

    In the file of --settings, a table such as [partition], or ["hard"] with planner = "partition",
    holds options of the planner. Batch size, similarity and temperature are those given here unless
    a table says otherwise; seed, memory and device are the same for all.

    The exit status is 0 if any planner made a plan, else that of the first.

    \b
    Example:
      batchplan compare embeddings.parquet --planners shuffled,gcbs,partition
    """
    from batchplan import comparison
    from batchplan.comparison.results import check_results

    if folder == "":  # an unset shell variable, which would mean the working directory
        raise InputError("folder: got an empty path, expected the name of one")
    kept = None if folder is None else Path(folder)
    names = None if planners is None else [name.strip() for name in planners.split(",")]
    options, session = measuring.options, measuring.session
    shared = {
        "batch_size": batch_size,
        "similarity": options.similarity,
        "temperature": options.temperature,
    }
    chosen = comparison.read_settings(names, settings, shared)
    read = [*embeddings, *measuring.paths, *([settings] if settings else [])]
    if kept is not None:
        check_results(kept, chosen, read)
    source = session.reading.source(embeddings)
    with session.opened(embeddings) as (data, runtime, _):
        labels, groups = measuring.labelling.codes(data)
        found = comparison.compare(
            chosen, data, source, options, runtime, labels=labels, groups=groups, folder=kept,
            inputs=read,
        )  # fmt: skip
    found = found.with_columns(**measuring.labelling.columns)
    if json:
        about = {"num_rows": data.num_rows, "dim": data.dim, "fingerprint": data.fingerprint}
        print_json({**about, "seed": runtime.seed, **found.to_dict()})
    else:
        _show(found)
    if not found.plans:  # what kills a process is nearly always a lack of memory
        raise typer.Exit(max(found.failures[0][1].status, 0) or ResourceError.exit_code)


def _show(found: Comparison) -> None:
    """A line a plan, figures below each other; then those that failed, with the reason."""
    from rich.text import Text

    from batchplan.cli.console import columns, print_out

    rows = [_row(place, one) for place, one in enumerate(found.plans, start=1)]
    if len({one.evaluation.batch_size for one in found.plans}) == 1:
        rows.append(_random_row(found.plans[0].evaluation))
    heads = list(rows[0]) if rows else ["rank", "planner"]
    failed = [{"planner": setting.name} for setting, _ in found.failures]
    cells = [["" if head in ("rank", "note") else head for head in heads]]
    cells += [[row.get(head, "") for head in heads] for row in (*rows, *failed)]
    lines = columns(cells, left=(heads.index("planner"), len(heads) - 1)).split("\n")
    failing = lines[1 + len(rows) :]
    width = max((line.cell_len for line in failing), default=0)
    for line, (_, failure) in zip(failing, found.failures, strict=True):
        line.pad_right(width - line.cell_len)
        line.append(f"  failed: {one_line(failure.error)}")
    print_out(Text("\n").join(lines))


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
