"""The command `compare`: plan with several planners, and rank the plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchplan.cli.grouping import grouped
from batchplan.cli.options import FORCE, JSON, Inputs, Measuring
from batchplan.cli.output import print_json
from batchplan.cli.statuses import STATUSES
from batchplan.errors import InputError, ResourceError
from batchplan.options import option
from batchplan.planners.common.options import PlannerOptions
from batchplan.text import one_line

if TYPE_CHECKING:  # it loads the measures
    from batchplan.comparison import Comparison

_BATCH_SIZE: Any = PlannerOptions.__dataclass_fields__["batch_size"]


@grouped
def compare(
    embeddings: Inputs,
    measuring: Measuring,
    planners: str | None = option(
        None,
        "Planners or tables of --settings, joined by commas.  [default: all tables, or "
        "shuffled,gcbs,rwr,scb,partition]",
        metavar="NAMES",
    ),
    settings: str | None = option(None, "TOML file of options.", kind="path"),
    batch_size: int = _BATCH_SIZE,
    folder: str | None = option(
        None, "Write the plans to this folder, as NAME.npz.", metavar="FOLDER"
    ),
    force: bool = FORCE,
    json: bool = JSON,
) -> None:
    """Plan with several planners and rank the plans.

    Plans rank by hardness, which docs/metrics.md explains.

    In the --settings file, a table such as [partition], or ["hard"] with planner = "partition", has
    the options of a planner. --batch-size, --similarity and --temperature apply unless a table sets
    its own.

    Exits with 0 if any planner succeeds, else with the status of the first.

    \b
    Example:
      batchplan compare embeddings.parquet --planners shuffled,gcbs,partition
    """
    from batchplan import comparison
    from batchplan.comparison.settings import check_folder

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
        check_folder(kept, chosen, read, force=force)
    source = session.source(embeddings)
    with session.opened(embeddings) as (data, runtime, _):
        facts = measuring.facts(data, runtime)
        result = comparison.compare_settings(
            chosen, data, facts, source, options, runtime, folder=kept
        )
    if json:
        about = {"num_rows": data.num_rows, "dim": data.dim, "fingerprint": data.fingerprint}
        print_json({**about, "seed": runtime.seed, **result.to_dict()})
    else:
        _show(result)
    if not result.plans:  # a process that was killed nearly always lacked memory
        raise typer.Exit(max(result.failures[0][1].status, 0) or STATUSES[ResourceError])


def _show(result: Comparison) -> None:
    """Print a line for each plan, the planners that failed and why, and the verdict."""
    from rich.text import Text

    from batchplan.cli.console import print_facts, print_out, print_table
    from batchplan.quality.metrics import basis

    if result.plans:
        if said := basis(result.plans[0].evaluation.to_dict()):
            print_out(Text(f"{said}; all plans share the sample", "italic"))
        print_table(result.table())
    if failed := result.failures:
        print_facts((one.name, f"failed: {one_line(failure.error)}") for one, failure in failed)
    if result.plans:
        print_out(Text())
        _, sentence, guard = result.choice
        print_facts([("guard", guard or ""), ("verdict", sentence)])
