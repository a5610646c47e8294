"""The command `check`: a gate for CI on the quality of a plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import (
    BatchSize,
    Computing,
    Inputs,
    Labelling,
    PlanFile,
    Reading,
    Speaking,
    print_json,
)
from batchplan.cli.planning import Force
from batchplan.cli.text import print_document, say
from batchplan.errors import InputError, OutputError
from batchplan.quality import EvaluationOptions
from batchplan.text import one_line

if TYPE_CHECKING:
    from batchplan.gates import Judgement

FAILED = 1  # the exit status of a plan that was judged and falls short
_SUMMARY = "GITHUB_STEP_SUMMARY"


@grouped
def check(
    plan: PlanFile,
    embeddings: Inputs,
    options: EvaluationOptions,
    labelling: Labelling,
    reading: Reading,
    running: Computing,
    speaking: Speaking,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=VALUE", help="The metric must be at least this; repeatable."),
    ] = None,
    fail_over: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=VALUE", help="The metric must be at most this; repeatable."),
    ] = None,
    fail_regress: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=TOLERANCE",
            help="The metric must not be worse than the baseline's by more: 2% of it, or 0.01; "
            "repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="What --write-baseline wrote for an earlier plan."),
    ] = None,
    write_baseline: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write this plan's metrics as JSON if all gates hold."),
    ] = None,
    style: Annotated[
        Literal["table", "json", "markdown", "junit"],
        typer.Option("--format", help="What standard output gets."),
    ] = "table",
    junit: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write JUnit XML too, for CI systems.")
    ] = None,
    summary: Annotated[
        bool,
        typer.Option("--summary", help="Append Markdown to the file that $GITHUB_STEP_SUMMARY is."),
    ] = False,
    force: Force = False,
    batch_size: BatchSize = None,
) -> None:
    """Fail where a plan falls short of gates on its metrics.

    For CI: the exit status is 0 if all gates hold and 1 if one does not. The metrics are those of
    evaluate; docs/metrics.md lists which can be judged, and which direction is better.

    \b
    Example:
      batchplan check plan.npy embeddings.parquet --write-baseline base.json
      batchplan check plan.npy embeddings.parquet --baseline base.json --fail-regress loss_train=2%
    """
    from batchplan.gates import Baseline, check_plan
    from batchplan.gates import junit as junit_xml
    from batchplan.gates.gate import parse_gates
    from batchplan.plans import Plan
    from batchplan.plans.atomic import write_files
    from batchplan.plans.negatives import is_negatives

    if not (fail_under or fail_over or fail_regress or write_baseline):
        raise typer.BadParameter(
            "without --fail-under, --fail-over, --fail-regress or --write-baseline nothing can fail"
        )
    if fail_regress and baseline is None:
        raise typer.BadParameter("--fail-regress needs a --baseline to compare with")
    gates = parse_gates(fail_under or (), fail_over or (), fail_regress or ())
    before = None if baseline is None else Baseline.load(baseline)
    steps = _summary_file() if summary else None
    read = [plan, *embeddings, *(reading.pair or []), labelling.label_table, baseline]
    _check_outputs([junit, write_baseline], [path for path in read if path], force)
    if is_negatives(plan):
        raise InputError(f"{plan}: is a table of negatives, expected a plan; evaluate measures it")

    watch = speaking.watch()
    runtime = running.runtime(watch)
    with watch.watching():
        data = reading.load(embeddings, runtime)
        made = Plan.load(plan, batch_size=batch_size, num_rows=data.num_rows)
        codes, groups = labelling.codes(data)
        judgement, measured = check_plan(
            made, data, gates, options, runtime,
            name=one_line(plan), labels=codes, groups=groups, columns=labelling.columns,
            baseline=before, baseline_name=one_line(baseline or ""),
        )  # fmt: skip

    files: dict[Path, bytes] = {}
    if junit:
        files[Path(junit)] = junit_xml(judgement).encode()
    if write_baseline and judgement.passed:
        files[Path(write_baseline)] = measured.to_bytes()
    write_files(files)
    if not speaking.quiet:
        for path in files:
            say(f"wrote {path}")
    if steps is not None:
        _append(steps, judgement)
    for warning in judgement.warnings:
        say(f"warning: {warning}")
    try:
        _show(judgement, style)
    finally:  # the verdict stands where nobody reads it
        if not judgement.passed:
            raise typer.Exit(FAILED)


def _summary_file() -> str:
    path = os.environ.get(_SUMMARY)
    if not path:
        raise InputError(
            f"--summary: ${_SUMMARY} is not set, expected the path that GitHub Actions sets; leave "
            "out --summary elsewhere"
        )
    return path


def _check_outputs(outputs: list[str | None], inputs: list[str], force: bool) -> None:
    from batchplan.plans.output import check_file

    wanted = [Path(path) for path in outputs if path is not None]
    for path in wanted:
        check_file(path, force, inputs)
    if len({os.path.realpath(path) for path in wanted}) < len(wanted):
        raise InputError(f"{wanted[0]}: given to --junit and to --write-baseline; choose two files")


def _append(path: str, judgement: Judgement) -> None:
    """Append the verdicts as Markdown; what other steps wrote stays."""
    from batchplan.gates import markdown

    try:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(f"{markdown(judgement)}\n")
    except OSError as error:
        raise OutputError(
            f"{path}: could not be appended to ({error.strerror or error}); ${_SUMMARY} must name "
            "a file that can be written, or leave out --summary"
        ) from error


def _show(judgement: Judgement, style: str) -> None:
    from batchplan.gates import junit, markdown

    if style == "json":
        print_json(judgement.to_dict())
    elif style == "table":
        _show_table(judgement)
    else:
        print_document(junit(judgement) if style == "junit" else markdown(judgement))


def _show_table(judgement: Judgement) -> None:
    from rich.table import Table
    from rich.text import Text

    from batchplan.cli.console import print_out
    from batchplan.gates.verdicts import number

    print_out(Text(f"{judgement.plan}: {judgement.about}"))
    if judgement.verdicts:
        table = Table(box=None, pad_edge=False)
        compared = any(verdict.baseline is not None for verdict in judgement.verdicts)
        table.add_column("metric")
        table.add_column("value", justify="right")
        if compared:
            table.add_column("baseline", justify="right")
        table.add_column("required", justify="right")
        table.add_column("verdict")
        for one in judgement.verdicts:
            before = "" if one.baseline is None else number(one.baseline)
            said = Text("ok", "green") if one.passed else Text("FAILED", "bold red")
            table.add_row(
                one.gate.metric, one.shown, *([before] if compared else []), one.demand, said
            )
        print_out(table)
    print_out(Text(judgement.outcome))
