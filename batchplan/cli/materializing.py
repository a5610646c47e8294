"""The command `materialize`: write a data set in the order of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated, Any

from batchplan.cli.grouping import argument, grouped
from batchplan.cli.options import (
    BATCH_SIZE,
    FORCE,
    JSON,
    MEMORY,
    QUIET,
    VERBOSE,
    PlanFile,
    refuse_plans,
)
from batchplan.cli.output import print_json
from batchplan.materialize.options import MaterializeOptions
from batchplan.options import option
from batchplan.runtime import format_bytes, peak_memory

if TYPE_CHECKING:  # it loads numpy and pyarrow
    from batchplan.materialize import Materialized

Data = Annotated[
    list[str],
    argument(
        "DATA", "Parquet, JSON lines or Arrow files, folders or globs, or folders of datasets."
    ),
]


@grouped
def materialize(
    plan: PlanFile,
    data: Data,
    options: MaterializeOptions,
    output: str = option(MISSING, "Folder to write.", "--output", "-o"),
    force: bool = FORCE,
    batch_size: int | None = BATCH_SIZE,
    json: bool = JSON,
    memory: str | None = MEMORY,
    quiet: bool = QUIET,
    verbose: bool = VERBOSE,
) -> None:
    """Write a data set in the order of a plan.

    For loaders that only stream, and for tables of negatives. docs/materialize.md says which layout
    is for which loader.

    \b
    Example:
      batchplan materialize plan.npy data.parquet -o planned --format mds
    """
    from pathlib import Path

    from batchplan import plans
    from batchplan.cli.console import Watch
    from batchplan.materialize import materialize as write
    from batchplan.materialize.materializing import NAME
    from batchplan.plans.formats.parquet import entry_ids
    from batchplan.plans.negatives import is_negatives
    from batchplan.plans.output import check_folder

    refuse_plans(data, "data")
    check_folder(output, NAME, force=force, inputs=[plan, *data])
    watch = Watch(quiet=quiet, verbose=verbose)
    with watch.watching():
        loaded: plans.Plan | plans.Negatives
        if is_negatives(plan):
            loaded = plans.Negatives.load(plan)
        else:
            loaded = plans.Plan.load(plan, batch_size=batch_size)
        ids = entry_ids(Path(plan), loaded.digest)
        written = write(
            loaded, data, output, ids=ids, force=force, memory=memory, observer=watch,
            inputs=[plan], **vars(options),
        )  # fmt: skip
    if json:
        print_json(_summary(written, output))
    else:
        memory_used = "peak memory", format_bytes(peak_memory())
        watch.summarize([*_facts(written), watch.timing(), memory_used])


def _summary(written: Materialized, output: str) -> dict[str, Any]:
    manifest = {key: value for key, value in written.manifest.items() if key != "shards"}
    return {
        "output": output,
        **manifest,
        "files": len(written.manifest["shards"]),
        "bytes_read": written.read,
        "bytes_temporary": written.temporary,
        "bytes_written": written.written,
        "peak_memory_bytes": peak_memory(),
    }


def _facts(written: Materialized) -> Iterator[tuple[str, str]]:
    manifest = written.manifest
    yield "rows", f"{manifest['rows']:,} of {manifest['num_rows']:,}"
    workers = f", {manifest['workers']} workers" if manifest["workers"] > 1 else ""
    devices = f", {manifest['world_size']} devices" if manifest["world_size"] > 1 else ""
    yield "layout", f"{manifest['layout']}{devices}{workers}"
    size = format_bytes(written.written)
    yield "files", f"{len(manifest['shards']):,} of {manifest['format']}, {size}"
    temporary = f", {format_bytes(written.temporary)} on disk at times" * bool(written.temporary)
    yield "rows read", f"{format_bytes(written.read)}{temporary}"
