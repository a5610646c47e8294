"""The command `report`: show plans on a page."""

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import PurePath
from typing import Annotated

import typer

from batchplan.cli.grouping import argument, check_paths, grouped
from batchplan.cli.options import BATCH_SIZE, FORCE, Measuring, load_plan
from batchplan.options import option
from batchplan.text import one_line

ATLAS = (  # as it finds the columns
    "embedding-atlas --x projection_x --y projection_y --neighbors neighbors --text text"
)


@grouped
def report(
    inputs: Annotated[
        list[str],
        argument(
            "PLAN... EMBEDDINGS",
            "One to six plan files, then their embeddings: a file, folder or glob.",
            check_paths,
        ),
    ],
    measuring: Measuring,
    batch_size: int | None = BATCH_SIZE,
    texts: str | None = option(
        None,
        "Columns of the texts of x, y and mined negatives, joined by commas.  [default: those "
        "that look like texts]",
        "--text-columns",
        metavar="NAMES",
    ),
    text_table: str | None = option(
        None,
        "File with these columns, in the order of the rows.  [default: EMBEDDINGS]",
        kind="path",
    ),
    row: list[int] | None = option(
        None,
        "Row to show first, with its hardest negatives and the rows that are kept away from it. "
        "Repeatable.  [default: rows of the hardest batches]",
    ),
    output: str = option("report.html", "HTML page to write.", "--output", "-o"),
    png: str | None = option(None, "Also write the pictures here, as PNG.", metavar="FOLDER"),
    atlas: str | None = option(
        None,
        "Also write all rows here for embedding-atlas, coloured by batch or loss.",
        metavar="FILE.parquet",
    ),
    force: bool = FORCE,
) -> None:
    """Show plans on one HTML page, the verdict first.

    The page has pictures, tables, and rows of the hardest batches, with who is kept away and why.
    It works offline. docs/metrics.md explains its numbers.

    \b
    Example:
      batchplan report plan.npy embeddings.parquet -o report.html
    """
    from batchplan.data.texts import text_columns
    from batchplan.report.write import check_report_output, write_report

    columns = None if texts is None else text_columns(texts)
    if len(inputs) < 2:
        raise typer.BadParameter("got one path, expected plans and then their embeddings")
    *files, embeddings = inputs
    read = [*inputs, *([text_table] if text_table else []), *measuring.paths]
    check_report_output(output, png, atlas, force=force, inputs=read)
    with measuring.session.opened([embeddings]) as (data, runtime, watch):
        plans = {
            name: load_plan(path, batch_size, data.num_rows)
            for name, path in zip(plan_names(files), files, strict=True)
        }
        write_report(
            plans, data, output, groups=measuring.groups(data),
            group_column=measuring.group_column, texts=columns, text_table=text_table,
            rows=row or (), png=png, atlas=atlas, force=force, inputs=read, device=runtime.device,
            memory=runtime.memory, seed=runtime.seed, observer=watch, **vars(measuring.options),
        )  # fmt: skip
    pictures = [] if png is None else [("pictures", png)]
    tables = [] if atlas is None else [("atlas", f"{ATLAS} {shlex.quote(atlas)}")]
    watch.summarize([watch.timing(), ("report", output), *pictures, *tables])


def plan_names(paths: Sequence[str]) -> list[str]:
    """Return the names of files, with their folder or a number if two names are equal."""
    ends = [[one_line(part) for part in PurePath(path).parts[-2:]] for path in paths]
    uses = Counter(end[-1] for end in ends)
    names: list[str] = []
    for end in ends:
        name = "/".join(end) if uses[end[-1]] > 1 else end[-1]
        numbered = (f"{name} ({number})" for number in count(2))
        names.append(name if name not in names else next(n for n in numbered if n not in names))
    return names
