"""The command `report`: a page that shows what plans do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import PurePath
from typing import Annotated

import typer

from batchplan.cli.grouping import check_paths, grouped
from batchplan.cli.options import BatchSize, Computing, Labelling, Reading, Speaking
from batchplan.cli.planning import Force
from batchplan.errors import InputError
from batchplan.options import paths_of
from batchplan.quality import EvaluationOptions
from batchplan.text import one_line

REPORT_FILE = "report.html"


@grouped
def report(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN... EMBEDDINGS",
            callback=check_paths,
            help="One to six plan files, then what they are plans of: a file, folder or glob.",
        ),
    ],
    options: EvaluationOptions,
    labelling: Labelling,
    reading: Reading,
    running: Computing,
    speaking: Speaking,
    batch_size: BatchSize = None,
    timing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="What a planner printed with --json, for its seconds; repeat it for several.",
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The page to write, .html.")
    ] = REPORT_FILE,
    png: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the pictures there too, as PNG.")
    ] = None,
    force: Force = False,
) -> None:
    """Show what plans do, in one HTML page with pictures.

    The page works without a network and asks for nothing outside itself. docs/metrics.md explains
    its numbers.

    \b
    Example:
      batchplan report plan.npy embeddings.parquet -o report.html
    """
    if len(inputs) < 2:
        raise typer.BadParameter("got one path, expected plans and then their embeddings")
    from batchplan.plans import Plan, is_plan
    from batchplan.plans.negatives import is_negatives
    from batchplan.report import write_report
    from batchplan.report.output import check_report_output
    from batchplan.report.summaries import read_seconds

    *files, embeddings = inputs
    if is_plan(embeddings):
        raise InputError(
            f"{embeddings}: is a plan, expected the embeddings last; "
            "give PLAN... EMBEDDINGS in this order"
        )
    for file in files:
        if is_negatives(file):
            raise InputError(
                f"{file}: is a table of negatives, expected a plan; use batchplan evaluate"
            )
    read = [*inputs, *(timing or []), *paths_of(reading, labelling)]
    check_report_output(output, png, force=force, inputs=read)
    watch = speaking.watch()
    runtime = running.runtime(watch)
    with watch.watching():
        data = reading.load([embeddings], runtime)
        codes, groups = labelling.codes(data)
        paths = dict(zip(plan_names(files), files, strict=True))
        plans = {
            name: Plan.load(path, batch_size=batch_size, num_rows=data.num_rows)
            for name, path in paths.items()
        }
        write_report(
            plans, data, output, options, runtime,
            labels=codes, groups=groups,
            columns=labelling.columns,
            seconds=read_seconds(timing or [], paths, data.fingerprint),
            png=png, force=force, inputs=read,
        )  # fmt: skip
    if not speaking.quiet:
        from batchplan.cli.console import facts

        stages = "  ".join(f"{stage} {taken:.2f}" for stage, taken in watch.seconds.items())
        rows = [("seconds", f"{stages}  total {watch.total_seconds():.2f}"), ("report", output)]
        if png is not None:
            rows.append(("pictures", png))
        watch.console.print(facts(rows), soft_wrap=True)


def plan_names(paths: Sequence[str]) -> list[str]:
    """The names of files, with their folder or a number where two are alike."""
    parts = [[one_line(part) for part in PurePath(path).parts[-2:]] for path in paths]
    alike = Counter(one[-1] for one in parts)
    names = ["/".join(one) if alike[one[-1]] > 1 else one[-1] for one in parts]
    made: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in count(2))
        made.append(name if name not in made else next(n for n in numbered if n not in made))
    return made
