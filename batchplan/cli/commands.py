"""The application: a command for each planner, and the commands that measure."""

from importlib import import_module
from typing import Annotated

import typer

import batchplan
from batchplan.cli.panels import PLANNERS_PANEL, Application, PaneledCommand, PlanningCommand
from batchplan.cli.planning import planner_command
from batchplan.planners import PLANNERS

# The modules of the commands other than planners.
_OTHERS = {
    "refine": "planning",
    "evaluate": "evaluating",
    "check": "checking",
    "compare": "comparing",
    "inspect": "inspecting",
    "report": "reporting",
    "concat": "concatenating",
    "materialize": "materializing",
    "embed": "embedding",
    "verify-consumption": "verifying",
    "demo": "demonstrating",
    "warmup": "warming",
}


def application(wanted: str | None = None) -> typer.Typer:
    """Return the application with all commands, or only with ``wanted`` if that is one of them.

    Building all commands is the slowest part of ``--help``. ``demo`` runs some of the others.
    """
    # Without rich markup, --help does not import rich and takes half the time.
    names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(cls=Application, context_settings=names, rich_markup_mode=None)
    app.callback()(_batchplan)
    commands = {**dict.fromkeys(["plan", *PLANNERS], "planning"), **_OTHERS}
    for name in [wanted] if wanted in commands and wanted != "demo" else commands:
        module = commands[name]
        kind = PlanningCommand if module == "planning" else PaneledCommand
        if name in PLANNERS:
            shown = app.command(name, cls=kind, rich_help_panel=PLANNERS_PANEL)
            shown(planner_command(name, PLANNERS[name]))
        else:
            function = getattr(import_module(f"batchplan.cli.{module}"), name.replace("-", "_"))
            app.command(name, cls=kind)(function)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batchplan {batchplan.__version__}")
        raise typer.Exit


def _batchplan(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Plan the batches of contrastive training, and measure the plans.

    Start with plan, or with demo, which needs no data. A planner reads embeddings of pairs and
    writes an order of the rows, whose batches contain hard negatives.

    \b
    Example:
      batchplan plan embeddings.parquet --batch-size 64 -o plan.npy
      batchplan evaluate plan.npy embeddings.parquet

    Exit status: 0 done; 1 a check failed; 2 usage; 3 bad input; 4 not enough memory, no such
    device or package; 5 output not written; 130 interrupted.
    """
