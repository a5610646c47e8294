"""The command `demo`: the main commands on sample data."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import FORCE
from batchplan.cli.output import say

_SAMPLE = Path(__file__).parents[1] / "sample.parquet"


@grouped
def demo(
    ctx: typer.Context,
    place: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder for the data, the plan and the page.")
    ] = "batchplan-demo",
    force: bool = FORCE,
) -> None:
    """Plan sample data, and write a page about the plan.

    Shows each command that it runs. Takes about 10 seconds on two idle cores, and 30 more in a new
    installation, to compile kernels. The page needs the packages of "batchplanner[report]".

    \b
    Example:
      batchplan demo
    """
    from batchplan.files.atomic import output_errors, write_files
    from batchplan.plans.output import check_files

    folder, names = Path(place), ("pairs.parquet", "plan.npy", "page.html")
    check_files(folder, names, force, [])
    with output_errors(folder):
        folder.mkdir(exist_ok=True)
    pairs, plan, page = (str(folder / name) for name in names)
    write_files({Path(pairs): _SAMPLE.read_bytes()})
    say("takes about 10 seconds, and 30 more in a new installation, to compile kernels once")
    for words in (
        ["plan", pairs, "-o", plan],
        ["evaluate", plan, pairs],
        ["report", plan, pairs, "-o", page, "-q"],
    ):
        words += ["--force"] * (force and words[0] != "evaluate")
        say(f"$ {shlex.join(['batchplan', *words])}")
        if status := ctx.find_root().command.main(words, "batchplan", standalone_mode=False):
            raise typer.Exit(status)
    say(f"open {page} in a browser")
