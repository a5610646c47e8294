"""The command `check`: a gate for CI on the quality of a plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import BATCH_SIZE, FORCE, Inputs, Measuring, PlanFile, load_plan
from batchplan.cli.output import print_document, print_json, say
from batchplan.errors import InputError, OutputError
from batchplan.options import option
from batchplan.text import one_line

if TYPE_CHECKING:  # it loads the measures
    from batchplan.gates import Judgement

_FAILED = 1  # exit status when a gate fails


@grouped
def check(
    plan: PlanFile,
    embeddings: Inputs,
    measuring: Measuring,
    fail_under: list[str] | None = option(
        None, "Require at least this value. Repeatable.", metavar="METRIC=VALUE"
    ),
    fail_over: list[str] | None = option(
        None, "Require at most this value. Repeatable.", metavar="METRIC=VALUE"
    ),
    fail_regress: list[str] | None = option(
        None,
        "Allow to be worse than the baseline by this: 2% of it, or 0.01. Repeatable.",
        metavar="METRIC=TOLERANCE",
    ),
    baseline: str | None = option(None, "Baseline file, from --write-baseline.", kind="path"),
    write_baseline: str | None = option(
        None, "Write these metrics as a baseline if no gate fails.", metavar="FILE"
    ),
    style: Literal["table", "json", "markdown"] = option(
        "table", "Format of standard output.", "--format"
    ),
    junit: str | None = option(None, "Also write JUnit XML.", metavar="FILE"),
    force: bool = FORCE,
    batch_size: int | None = BATCH_SIZE,
) -> None:
    """Fail if a plan does not meet limits on its metrics.

    Exits with 1 if a gate fails. docs/metrics.md lists the metrics.

    \b
    Example:
      batchplan check plan.npy embeddings.parquet --write-baseline base.json
      batchplan check plan.npy embeddings.parquet --baseline base.json --fail-regress loss_train=2%
    """
    from batchplan import gates
    from batchplan.files.atomic import write_files
    from batchplan.plans.output import check_file

    if not (fail_under or fail_over or fail_regress or write_baseline):
        raise typer.BadParameter(
            "nothing can fail; pass a limit, such as --fail-under hardness=20%, or --write-baseline"
        )
    if fail_regress and baseline is None:
        raise typer.BadParameter("--fail-regress needs a --baseline to compare with")
    required = [
        *map(gates.fail_under, fail_under or ()),
        *map(gates.fail_over, fail_over or ()),
        *map(gates.fail_regress, fail_regress or ()),
    ]
    read = [plan, *embeddings, *measuring.paths, *([baseline] if baseline else [])]
    for path in filter(None, (junit, write_baseline)):
        check_file(Path(path), force, read)
    if junit and write_baseline and os.path.realpath(junit) == os.path.realpath(write_baseline):
        raise InputError(f"{junit}: given to --junit and to --write-baseline; choose two files")
    reference = None if baseline is None else gates.Baseline.load(baseline)

    with measuring.session.opened(embeddings) as (data, runtime, _):
        candidate = load_plan(plan, batch_size, data.num_rows)
        facts = measuring.facts(data, runtime)
        judgement, measured = gates.check_plan(
            candidate, data, facts, required, measuring.options, runtime, name=one_line(plan),
            baseline=reference, baseline_name=one_line(baseline or ""),
        )  # fmt: skip

    files: dict[Path, bytes] = {}
    if junit:
        files[Path(junit)] = gates.junit(judgement).encode()
    if write_baseline and judgement.passed:
        files[Path(write_baseline)] = measured.to_bytes()
    try:
        write_files(files)
        if not measuring.session.quiet:
            for written in files:
                say(f"wrote {written}")
    except OutputError as error:
        if judgement.passed:
            raise
        say(f"error: {error}")  # the exit status is still the verdict's
    for warning in judgement.warnings:
        say(f"warning: {warning}")
    try:
        _show(judgement, style)
    finally:  # the check fails even if the verdict cannot be printed
        if not judgement.passed:
            raise typer.Exit(_FAILED)


def _show(judgement: Judgement, style: str) -> None:
    from rich.text import Text

    from batchplan.cli.console import columns, print_out
    from batchplan.gates import markdown
    from batchplan.gates.verdicts import number

    if style == "json":
        return print_json(judgement.to_dict())
    if style == "markdown":
        return print_document(markdown(judgement))
    print_out(Text(f"{judgement.plan}: {judgement.about}"))
    if judgement.verdicts:
        heads = ("metric", "value", "baseline", "required", "verdict")
        rows = [[Text(head, "bold") for head in heads]]
        for verdict in judgement.verdicts:
            before = "" if verdict.baseline is None else number(verdict.baseline)
            outcome = Text("ok", "green") if verdict.passed else Text("FAILED", "bold red")
            cells = (verdict.gate.metric, verdict.shown, before, verdict.demand)
            rows.append([*map(Text, cells), outcome])
        if all(verdict.baseline is None for verdict in judgement.verdicts):
            rows = [[*row[:2], *row[3:]] for row in rows]
        print_out(columns(rows, left=(0, len(rows[0]) - 1)))
    print_out(Text(judgement.outcome))
