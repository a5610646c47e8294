"""The command `check`: a gate for CI on the quality of a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EACCES
from io import FileIO
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
from batchplan.options import paths_of
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
    from batchplan.plans.negatives import is_negatives

    if not (fail_under or fail_over or fail_regress or write_baseline):
        raise typer.BadParameter(
            "without --fail-under, --fail-over, --fail-regress or --write-baseline nothing can fail"
        )
    if fail_regress and baseline is None:
        raise typer.BadParameter("--fail-regress needs a --baseline to compare with")
    gates = parse_gates(fail_under or (), fail_over or (), fail_regress or ())
    steps = _summary_file() if summary else None
    written = {"--junit": junit, "--write-baseline": write_baseline}
    read = [plan, *embeddings, *paths_of(reading, labelling), *([baseline] if baseline else [])]
    _check_outputs(written, steps, read, force)
    before = None if baseline is None else Baseline.load(baseline)
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
    try:
        write_outputs(files, steps, judgement)
        if not speaking.quiet:
            for path in files:
                say(f"wrote {path}")
    except OutputError as error:
        if judgement.passed:
            raise
        say(f"error: {error}")  # the verdict says more
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


def _check_outputs(
    written: Mapping[str, str | None], steps: str | None, inputs: list[str], force: bool
) -> None:
    """Refuse outputs, by their options, that cannot be written; ``steps`` is appended to."""
    from batchplan.files.inputs import check_kept
    from batchplan.plans.output import check_file

    wanted = {option: Path(path) for option, path in written.items() if path is not None}
    for path in wanted.values():
        check_file(path, force, inputs)
    if steps is not None:
        _check_appending(steps)
        check_kept(Path(steps), inputs)
        wanted["--summary"] = Path(steps)
    taken: dict[str, str] = {}
    for option, path in wanted.items():
        if (other := taken.setdefault(os.path.realpath(path), option)) != option:
            raise InputError(f"{path}: given to {other} and to {option}; choose two files")


def _check_appending(path: str) -> None:
    with _appending(path):
        try:
            os.stat(path)
        except FileNotFoundError:
            folder = os.path.dirname(os.path.realpath(path))
            os.stat(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(EACCES, os.strerror(EACCES)) from None
        else:  # without waiting for the reader of a pipe
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))


def write_outputs(files: Mapping[Path, bytes], steps: str | None, judgement: Judgement) -> None:
    """Write the files, and append the verdicts to ``steps``; all of it, or nothing."""
    from batchplan.files.atomic import write_files
    from batchplan.files.signals import signals_deferred

    with signals_deferred(), _appended(steps, judgement):
        write_files(files)


@contextmanager
def _appended(path: str | None, judgement: Judgement) -> Iterator[None]:
    """Append the verdicts as Markdown to a file, if there is one, after what other steps wrote;
    taken back if the body fails."""
    from batchplan.gates import markdown

    if path is None:
        yield
        return
    existed = os.path.exists(path)
    size = os.path.getsize(path) if existed else 0
    try:
        with _appending(path), open(path, "ab", buffering=0) as stream:
            _write_all(stream, f"{markdown(judgement)}\n".encode())
        yield
    except BaseException:
        with suppress(OSError):  # a pipe keeps what it got
            if existed:
                os.truncate(path, size)
            else:
                os.unlink(path)
        raise


def _write_all(stream: FileIO, text: bytes) -> None:
    while text:
        text = text[stream.write(text) or 0 :]


@contextmanager
def _appending(path: str) -> Iterator[None]:
    try:
        yield
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
