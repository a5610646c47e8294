"""The application: one command a planner, and the commands that measure."""

from __future__ import annotations

from typing import Annotated

import typer

import batchplan
from batchplan.cli.checking import check
from batchplan.cli.commands import Command, Commands, PrintingCommand
from batchplan.cli.comparing import compare
from batchplan.cli.evaluating import evaluate
from batchplan.cli.inspecting import inspect
from batchplan.cli.planning import planner_command, refine
from batchplan.cli.reporting import report
from batchplan.planners import PLANNERS

# Without rich markup, --help needs no rich import: it takes half the time.
app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batchplan {batchplan.__version__}")
        raise typer.Exit


@app.callback()
def batchplan_(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Plan the batches of contrastive training, and measure the plans.

    A planner reads embeddings of paired data and writes an order of the rows; batches cut from it
    in sequence hold hard negatives for each other.

    \b
    Example:
      batchplan gcbs embeddings.parquet --batch-size 64 -o plan.npy
      batchplan evaluate plan.npy embeddings.parquet

    \b
    Exit status: 0 done; 1 a check failed; 2 usage; 3 bad input; 4 not enough memory, or the device
    asked for is missing; 5 output could not be written; 130 interrupted.
    """


for _name, _planner in PLANNERS.items():
    app.command(_name, cls=Command)(planner_command(_name, _planner))
app.command(cls=Command)(refine)
for _prints in (evaluate, check, compare, inspect):
    app.command(cls=PrintingCommand)(_prints)
app.command(cls=Command)(report)
