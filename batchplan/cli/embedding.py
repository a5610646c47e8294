"""The command `embed`: embed the texts of a data set."""

from dataclasses import MISSING
from typing import Annotated

import typer

from batchplan.cli.grouping import check_no_urls, grouped
from batchplan.cli.materializing import Data
from batchplan.cli.options import FORCE, JSON, QUIET, VERBOSE
from batchplan.cli.output import print_json
from batchplan.embedding.options import EmbedOptions
from batchplan.options import option
from batchplan.runtime import format_bytes, peak_memory

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        callback=check_no_urls,
        help="Folder of a sentence-transformers model, or its name on the Hub.",
    ),
]


@grouped
def embed(
    model: Model,
    data: Data,
    options: EmbedOptions,
    output: str = option(MISSING, "Folder to write.", "--output", "-o"),
    force: bool = FORCE,
    device: str = option("auto", "cpu, cuda, cuda:N, or auto: CUDA if available."),
    json: bool = JSON,
    quiet: bool = QUIET,
    verbose: bool = VERBOSE,
) -> None:
    """Embed the texts of a data set for planners.

    Writes float16 shards; after an interruption, the same command keeps finished ones. Needs
    sentence-transformers.

    \b
    Example:
      batchplan embed model data.parquet --columns anchor,positive -o pairs
    """
    from batchplan.cli.console import Watch
    from batchplan.embedding import embed as write

    watch = Watch(quiet=quiet, verbose=verbose)
    with watch.watching():
        done = write(
            model, data, output, force=force, device=device, observer=watch, **vars(options)
        )
    if json:
        shape = {"dimensions": done.dim, "shards": done.shards, "kept": done.kept}
        print_json({"output": output, **done.facts, **shape})
        return
    kept = f", {done.kept:,} of an earlier run" * bool(done.kept)
    rows = [
        ("rows", f"{done.facts['rows']:,}, {', '.join(options.names)} of {done.dim:,} dimensions"),
        ("shards", f"{done.shards:,}{kept}"),
    ]
    watch.summarize([*rows, watch.timing(), ("peak memory", format_bytes(peak_memory()))])
