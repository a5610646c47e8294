"""`materialize`: write a data set in the order of a plan."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedWriter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import id_type
from batchplan.data.columns import DEFAULT_ID
from batchplan.data.ids import Ids, arrow_from, check_digest, check_same
from batchplan.data.records import Source
from batchplan.errors import InputError
from batchplan.files.atomic import output_errors
from batchplan.files.folders import staged_folder
from batchplan.files.inputs import PathLike, listed
from batchplan.keywords import MaterializeKeywords
from batchplan.materialize.formats import format_of
from batchplan.materialize.formats.contents import OutputFormat, ShardRows, Written
from batchplan.materialize.gathering import Ordered
from batchplan.materialize.layouts import InOrder, Tuples
from batchplan.materialize.options import MaterializeOptions
from batchplan.options import ROW_COLUMN, with_options
from batchplan.plans import Negatives, Plan
from batchplan.plans.output import check_folder
from batchplan.runtime import NOTE, Observer, Runtime, format_bytes

NAME = "_batchplan.json"  # of the manifest; readers of folders skip names that begin with _
_ENTRY_BYTES = 48  # of numbers that are kept for each row of the output
_WORKING = 160 * 10**6  # bytes that stages hold besides rows and numbers
_LEAST_ROOM = 64 * 10**6  # bytes of held rows; each time they fill it, a file is written


@dataclass(frozen=True)
class Materialized:
    """A summary of a written folder.

    Attributes:
        manifest: the content of its ``_batchplan.json``: how it was written, and for which plan.
        read: bytes of the rows that were read, decoded; each row is read once.
        temporary: bytes of temporary files, which are removed again.
        written: bytes of the files.
    """

    manifest: dict[str, Any]
    read: int
    temporary: int
    written: int


@with_options(MaterializeOptions)
def materialize(
    plan: Plan | Negatives,
    data: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    ids: Any = None,
    force: bool = False,
    memory: int | str | None = None,
    observer: Observer | None = None,
    inputs: Sequence[PathLike] = (),
    **options: Unpack[MaterializeKeywords],
) -> Materialized:
    """Write a data set in the order of a plan, for loaders that only stream.

    For a table of negatives, write its anchors with their positives and negatives.

    Args:
        plan: the plan or the table; its rows are row numbers of the data.
        data: files, folders or globs of Parquet, JSON lines or Arrow, or folders that `datasets`
            saved. Row i is row i of all files together, in their order.
        output: the folder to write. It appears complete or not at all.
        ids: Arrow, the id of each entry of the plan (num_entries,), or of each anchor of the table
            (n,); or None. If the data has ids, they must be the same.
        force: whether a folder that this function wrote may be replaced.
        memory, observer: see `Runtime`.
        inputs: more files that must not be overwritten, such as the file of the plan.
        options: fields of `MaterializeOptions`: the format, the layout and the columns.

    Raises:
        InputError: the data cannot be read, or has other rows or ids than the plan; a column is
            missing, or the format cannot hold its type; the batches do not fit the layout; or the
            output cannot be used.
        ResourceError: there is not enough memory.
        OutputError: a file could not be written. What was there before is still there.
    """
    settings, runtime = MaterializeOptions(**options), Runtime.of("cpu", memory, observer=observer)
    paths, path, facts = listed(data), Path(output), plan.metadata
    check_folder(path, NAME, force=force, inputs=[*paths, *inputs])
    form = format_of(settings.format)
    shape = Tuples.of(plan, settings) if isinstance(plan, Negatives) else InOrder.of(plan, settings)
    with runtime.stage("scan"):
        source = Source.of(paths, runtime, settings.column, settings.shard_order)
        plan.require_match(source.num_rows, None)
        facts.require_order(source.order)
        if ids is not None or facts.ids_digest is not None:
            _require_ids(plan, ids, source, settings.id_column, runtime)
    source = replace(source, schema=shape.read(source.schema, str(source.paths[0])))
    schema = shape.schema(source.schema)
    form.check(schema)

    order = np.concatenate([shard for shards in shape.folders.values() for shard in shards])
    with staged_folder(path, keep=False) as staged, TemporaryDirectory(dir=staged) as runs:
        ordered = Ordered(order, Path(runs), _room(len(order), runtime), group=shape.group)
        with runtime.stage("read", source.num_rows) as advance:
            ordered.fill(
                source.batches(),
                lambda need: runtime.note(
                    "cost", f"about {format_bytes(need)} of temporary disk next to {path}"
                ),
                advance,
            )
        with runtime.stage("write", len(order)) as advance:
            files = list(_write_shards(ordered, shape, schema, form, staged, advance))
        manifest = {
            "plan": plan.digest,
            "fingerprint": facts.fingerprint,
            "layout": shape.layout,
            "format": settings.format,
            "batch_size": facts.batch_size,
            "world_size": facts.world_size,
            "scope": facts.scope,
            "workers": settings.workers,
            "num_rows": facts.num_rows,
            "rows": len(order) // shape.group,
            "columns": [name for name in schema.names if name != ROW_COLUMN],
            "shards": [{"path": file.name, "rows": file.num_rows} for file in files],
            "version": 1,
        }
        text = json.dumps(manifest, indent=2)
        _write(staged / NAME, BufferedWriter.write, f"{text}\n".encode())
    return Materialized(manifest, ordered.read, ordered.temporary, sum(file.size for file in files))


def _require_ids(
    plan: Plan | Negatives, ids: Any, source: Source, column: str | None, runtime: Runtime
) -> None:
    """Require that the data has the ids of a plan or a table of negatives.

    Args:
        plan: the plan or the table.
        ids: as of `materialize`; None compares their digest.
        source: the data.
        column: of their ids, as `Source.ids` takes it; but ``id`` must be of a type of ids.
    """
    rows = plan.rows if isinstance(plan, Plan) else plan.anchors
    if ids is not None:
        ids = arrow_from(ids, id_type, "ids of the plan", "expected integers or strings")
        if len(ids) != len(rows):
            raise InputError(f"ids of the plan: got {len(ids)}, expected {len(rows)}")
    if column is None and DEFAULT_ID in source.available.names:
        column = DEFAULT_ID
    if (named := source.ids(column)) is not None:
        own = Ids(
            named[1], f"column {named[0]!r} of the data",
            lambda entry: source.place(int(rows[entry])),
        )  # fmt: skip
        if ids is None:
            check_digest(plan.metadata.ids_digest, own)
            return
        own = own._replace(values=own.values.take(pa.array(rows)))
        check_same(Ids(ids, "the plan", own.place), own)
    elif column is None:
        runtime.note(
            NOTE,
            f"the plan has ids, the data no column {DEFAULT_ID!r}: rows pair by position; name the "
            "column that has them with --id-column ('' for none)",
        )


def _room(entries: int, runtime: Runtime) -> int:
    """Return how many bytes of rows may be held.

    Raises:
        ResourceError: not even the numbers of all rows fit.
    """
    need = _WORKING + _ENTRY_BYTES * entries + 2 * _LEAST_ROOM
    runtime.require_memory(need, f"materialize: the places of {entries} rows")
    # Half of the rest, since memory that the allocator keeps of freed rows counts too.
    return (runtime.memory_left() - need) // 2 + _LEAST_ROOM


def _write_shards(
    ordered: Ordered,
    shape: InOrder | Tuples,
    schema: pa.Schema,
    form: OutputFormat,
    home: Path,
    advance: Callable[[int], None],
) -> Iterator[Written]:
    """Write the files of all folders below ``home``; yield each with its path from there. Call
    ``advance`` with the number of entries of each."""
    stop = 0
    for folder, shards in shape.folders.items():
        place = home / folder
        with output_errors(place):
            place.mkdir(exist_ok=True)
        files: list[Written] = []
        for number, entries in enumerate(shards):
            start, stop = stop, stop + len(entries)
            name, count = form.name(number, len(shards)), len(entries) // shape.group
            before = sum(file.num_rows for file in files)
            rows = (shape.joined(*some, schema) for some in ordered.between(start, stop))
            shard = ShardRows(schema, count, before, rows)
            files.append(Written(name, count, _write(place / name, form.write, shard)))
            advance(len(entries))
        for name, text in form.index(schema, files).items():
            _write(place / name, BufferedWriter.write, text)
        for file in files:
            yield file._replace(name=os.path.join(folder, file.name))


def _write(path: Path, write: Callable[[BufferedWriter, Any], object], content: Any) -> int:
    """Write content to a new file and force it to disk; return the size of the file in bytes."""
    with output_errors(path), path.open("xb") as stream:
        write(stream, content)
        stream.flush()
        os.fsync(stream.fileno())
        return stream.seek(0, os.SEEK_END)
