"""The command `embed`: embed the texts of a data set."""

from __future__ import annotations

from dataclasses import MISSING, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from batchplan.cli.grouping import argument, grouped
from batchplan.cli.materializing import Data
from batchplan.cli.options import FORCE, JSON, QUIET, VERBOSE, HostSession, Session
from batchplan.cli.output import print_json
from batchplan.embedding.options import EmbedOptions
from batchplan.errors import InputError, OptionError
from batchplan.options import option
from batchplan.runtime import format_bytes, peak_memory

if TYPE_CHECKING:  # it loads rich
    from batchplan.cli.console import Watch
    from batchplan.planners.common.options import PlainOptions

Model = Annotated[
    str, argument("MODEL", "Folder of a sentence-transformers model, or its name on the Hub.")
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
        return print_json({"output": output, **done.facts, **shape})
    kept = f", {done.kept:,} of an earlier run" * bool(done.kept)
    rows = [
        ("rows", f"{done.facts['rows']:,}, {', '.join(options.names)} of {done.dim:,} dimensions"),
        ("shards", f"{done.shards:,}{kept}"),
    ]
    watch.summarize([*rows, watch.timing(), ("peak memory", format_bytes(peak_memory()))])


def embedded_texts(
    data: list[str],
    model: str,
    output: str,
    options: PlainOptions,
    session: Session,
    *,
    whole: bool,
    force: bool,
) -> tuple[str, Session, Watch]:
    """Embed tables of texts in a folder next to a plan, unless it has their vectors already.

    Args:
        data: the tables. Their columns are named by ``session``, or found.
        output: the plan.
        options: of the plan.
        whole: whether the whole model runs; otherwise its token vectors are averaged.

    Returns:
        The folder, the session that reads it, and what has watched.

    Raises:
        OptionError: other files are named with the texts.
        InputError: no column of texts; as `batchplan.embed`; or as `_check_rows`.
    """
    from batchplan.cli.console import Watch
    from batchplan.data.records import Source
    from batchplan.data.texts import paired_columns, strings_of
    from batchplan.data.wanted import negatives_of
    from batchplan.embedding import embed as write
    from batchplan.runtime import NOTE, Runtime

    if session.pair or session.negatives not in (None, [], ["none"]):
        raise OptionError("model: given with files of vectors; give one table with all texts")
    named = [name for name in (session.x_column, session.y_column) if name is not None]
    if named and len(named) != 2 - session.single:
        raise OptionError("model: given with one column of two; name both, or none")
    watch = Watch(quiet=session.quiet, verbose=session.verbose)
    with watch.watching():
        runtime = Runtime.of(session.device, session.memory, observer=watch)
        source = Source.of(data, runtime, order=session.shard_order)
        _check_rows(source.num_rows, options)
        schema = source.available
        names = strings_of(schema, named, 2 - session.single)
        usual = paired_columns(names, 2 - session.single)
        mined = [] if session.negatives else negatives_of(names)
        found = [*(named or usual[:2]), *mined * (not session.single)]
        if not found:
            raise InputError(
                f"{data[0]}: the columns are {', '.join(schema.names)}, expected texts; name them "
                "with --x-column and --y-column"
            )
        if not named and len(names) > len(found):
            columns = " and ".join(found[:2])
            runtime.note(
                NOTE, f"texts: the columns {columns}; name others with --x-column and --y-column"
            )
        folder = str(Path("plan" if output == "-" else output).with_suffix(".vectors"))
        write(
            model, data, folder, force=force, reuse=True, device=session.device, observer=watch,
            columns=",".join(found), id_column=session.id_column, table=not whole, keep_texts=True,
            shard_order=session.shard_order,
        )  # fmt: skip
    plain = HostSession()
    kept = ("x_column", "y_column", "id_column", "shard_order", "negatives")
    return folder, replace(session, **{name: getattr(plain, name) for name in kept}), watch


def _check_rows(num_rows: int, options: PlainOptions) -> None:
    """Refuse before the texts are embedded, which may take hours, what planners refuse: too few
    rows for a batch, and labels that cannot be read. Raises InputError."""
    from batchplan.data import Embeddings
    from batchplan.data.answers import answers_of
    from batchplan.guard.guard import group_codes
    from batchplan.planners.planning import check_enough

    rows = Embeddings.alike(num_rows)
    check_enough("random", rows, options)
    group_codes(rows, options.label_table, options.group_column)
    answers_of(rows, options, equal=False)
