"""The command `compare`: plan with several planners, and rank the plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import JSON, Inputs, Measuring
from batchplan.cli.output import print_json
from batchplan.errors import InputError, ResourceError
from batchplan.options import option
from batchplan.planners.common.options import PlannerOptions
from batchplan.text import one_line

if TYPE_CHECKING:  # these would load the measures
    from batchplan.comparison import Comparison
    from batchplan.quality import Evaluation

_BATCH_SIZE: Any = PlannerOptions.__dataclass_fields__["batch_size"]
_HEADS = {"labels": "same label", "group": "same group"}


@grouped
def compare(
    embeddings: Inputs,
    measuring: Measuring,
    planners: str | None = option(
        None,
        "Planners or tables of --settings, separated by commas.  [default: all tables, or else "
        "shuffled,gcbs,rwr,scb,partition]",
        metavar="NAMES",
    ),
    settings: str | None = option(
        None, "TOML file of options, one table per setting.", kind="path"
    ),
    batch_size: int = _BATCH_SIZE,
    folder: str | None = option(
        None, "Keep plans in this folder, and reuse those already there.", metavar="FOLDER"
    ),
    json: bool = JSON,
) -> None:
    """Plan with several planners and rank the plans.

    Each planner runs in its own process; if it fails, the table shows its error. Plans rank by gap
    reduction, or by gap reduction over allowed pairs if a limit or --group-column is given. The
    limit and --label-column only measure; planners have their own guards.

    In the --settings file, a table such as [partition], or ["hard"] with planner = "partition",
    holds the options of a planner. --batch-size, --similarity and --temperature apply unless a
    table sets its own. --seed, --memory and --device apply to all.

    Exits with 0 if any planner succeeds, else with the status of the first.

    \b
    Example:
      batchplan compare embeddings.parquet --planners shuffled,gcbs,partition
    """
    from batchplan import comparison
    from batchplan.comparison.results import check_results

    if folder == "":  # an unset shell variable; it would mean the working directory
        raise InputError("folder: got an empty path, expected the name of a folder")
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
    source = session.source(embeddings)
    with session.opened(embeddings) as (data, runtime, _):
        labels, groups = measuring.labelling.codes(data)
        result = comparison.compare(
            chosen, data, source, options, runtime, labels=labels, groups=groups, folder=kept,
            inputs=read,
        )  # fmt: skip
    result = result.with_columns(**measuring.labelling.columns)
    if json:
        about = {"num_rows": data.num_rows, "dim": data.dim, "fingerprint": data.fingerprint}
        print_json({**about, "seed": runtime.seed, **result.to_dict()})
    else:
        _show(result)
    if not result.plans:  # a process that is killed nearly always lacked memory
        raise typer.Exit(max(result.failures[0][1].status, 0) or ResourceError.exit_code)


def _show(result: Comparison) -> None:
    """A table with a line per plan, then the planners that failed and why."""
    from rich.text import Text

    from batchplan.cli.console import columns, print_out
    from batchplan.quality.metrics import basis
    from batchplan.runtime import format_bytes

    if result.plans and (said := basis(result.plans[0].evaluation)):
        print_out(Text(f"{said}; all plans share the sample", "italic"))
    figures = [_figures(ranked.evaluation) for ranked in result.plans]
    heads = list(figures[0]) if figures else []
    rows = [["", "planner", *heads, *(["seconds", "memory", ""] if figures else [])]]
    for place, (ranked, own) in enumerate(zip(result.plans, figures, strict=True), start=1):
        cost = [f"{ranked.cost.seconds:.2f}", format_bytes(ranked.cost.peak_memory_bytes)]
        measured = [planned for planned, _ in own.values()]
        rows.append([str(place), ranked.setting.name, *measured, *cost, "kept" * ranked.kept])
    if len({ranked.evaluation.batch_size for ranked in result.plans}) == 1:
        rows.append(["", "random batches", *(random for _, random in figures[0].values())])
    rows += [["", setting.name] for setting, _ in result.failures]
    lines = columns(rows, left=(1, len(rows[0]) - 1)).split("\n")
    failing = lines[len(lines) - len(result.failures) :]
    width = max((line.cell_len for line in failing), default=0)
    for line, (_, failure) in zip(failing, result.failures, strict=True):
        line.pad_right(width - line.cell_len)
        line.append(f"  failed: {one_line(failure.error)}")
    print_out(Text("\n").join(lines))


def _figures(evaluation: Evaluation) -> dict[str, tuple[str, str]]:
    """Figures of a plan and of random batches of the same sizes, by column head, score first."""
    from batchplan.quality.metrics import text_of

    figures, guard = {}, evaluation.guard
    if guard is not None:
        figures["allowed"] = text_of(evaluation, "guard.gap_reduction", "z.1%"), "0.0%"
        figures["broken"] = _share(guard.broken_share), _share(guard.broken_share_random)
    figures["reduction"] = text_of(evaluation, "gap_reduction", "z.1%"), "0.0%"
    figures["oracle"] = text_of(evaluation, "oracle_share", "z.1%"), "0.0%"
    figures["loss"] = f"{evaluation.loss_train:.4f}", f"{evaluation.loss_random:.4f}"
    for kind, negatives in evaluation.false_negatives.items():
        figures[_HEADS[kind]] = _share(negatives.rate), _share(negatives.rate_random)
    return figures


def _share(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2%}"
