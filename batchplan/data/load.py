"""`load_embeddings`: reads and checks embeddings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from batchplan.data.embeddings import Embeddings, check_shapes
from batchplan.data.formats import format_of, has_columns
from batchplan.data.formats.arrays import ArrayFormat, ArraySource
from batchplan.data.matrix import Allocate, Side
from batchplan.data.memory import in_memory
from batchplan.data.origin import Origin
from batchplan.data.shards import find_shards, note_empty
from batchplan.data.single import alone
from batchplan.data.wanted import Wanted
from batchplan.errors import InputError
from batchplan.extras import missing_told
from batchplan.files.inputs import PathLike
from batchplan.files.remote import ShardPath
from batchplan.files.scratch import scratch_array, scratch_folder
from batchplan.options import ShardOrder
from batchplan.runtime import NOTE, SCRATCH, WARNING, Observer, Runtime, format_bytes, silent

if TYPE_CHECKING:  # arrays need no Arrow
    import pyarrow as pa

    from batchplan.data.formats.tables import TableSource

    Sources = list[ArraySource | TableSource]

Input = PathLike | Sequence[PathLike] | Any  # paths of a side, or its values
NO_NEGATIVES = "none"
Files = tuple[list[ShardPath], list[ShardPath], list[list[ShardPath]]]  # x, y, and negatives


@missing_told()
def load_embeddings(
    paths: Input,
    pair: Input | None = None,
    *,
    negatives: Any = None,
    x_column: str | None = None,
    y_column: str | None = None,
    id_column: str | None = None,
    single: bool = False,
    shard_order: ShardOrder | None = None,
    memory: int | str | None = None,
    observer: Observer | None = None,
) -> Embeddings:
    """Read one side or two and check every value.

    Args:
        paths: files, folders, globs or URLs of shards, or an (N, d) array, tensor or column, as
            `Embeddings.from_arrays` takes. Several paths are read in their order.
        pair: the other side, in the same form; None if ``paths`` has both sides (two vector
            columns), or if there is only one matrix.
        negatives: mined negatives: files, folders, globs or URLs, each of N rows, or of a table
            with the columns ``negative_1``, ``negative_2``, ...; with arrays, as
            `Embeddings.from_arrays` takes. By default those columns of ``paths``; "none" reads
            none.
        x_column: the vector column or tensor of x, by default the first column; if there are two,
            the other is y.
        y_column: the vector column of y, or of ``pair``; the name in ``x_column`` means one matrix.
        id_column: the column of row ids, by default ``id`` if it exists; an empty name reads none.
        single: whether each row of one matrix is its own positive. Without it, several paths of one
            matrix are refused, and a folder or glob that may have the two sides of pairs: files
            whose names differ in more than digits, with equally many rows.
        shard_order: the order of the files in a folder or glob: ``lexicographic``, as pyarrow,
            pandas, polars and `datasets` read them, or ``natural`` (2 before 10). It is needed only
            if the two differ.
        memory, observer: see `Runtime`.

    Raises:
        InputError: the input cannot be used; the message says what, where, and how to mend it.
        ResourceError: decoded or converted shards fit neither into the memory left nor on the disk
            of temporary files.

    Warns:
        UserWarning: there is one matrix without ``single``; an observer gets a note instead.
    """
    wanted = Wanted(x_column, y_column, id_column, not _unwanted(negatives))
    if in_memory(paths) or in_memory(pair):
        return _from_arrays(paths, pair, negatives, wanted)
    runtime = Runtime.of(memory=memory, observer=observer)
    # Before the files are opened.
    files = _files(paths, pair, negatives, shard_order)
    origin = Origin(*files, wanted, shard_order).watched()
    sources = _open(origin)
    _check_id_types(origin)
    lonely = alone(paths, origin, sources, single)
    if origin.x == origin.y and isinstance(format_of(origin.x[0]), ArrayFormat):
        raise InputError(
            f"{origin.x[0]}: got the same files for both sides, whose rows would be their own "
            "positives, expected pairs; name the files of the other side as the pair (--pair), or "
            "pass single=True (--single) without a pair"
        )
    shapes = [shape for source in sources for shape in source.shapes]
    check_shapes(shapes)
    allocate = _where_they_fit(sources, runtime)
    work = sum(source.work for source in sources)
    # Rows that are decoded or converted are counted again when they are checked.
    with runtime.stage("read", sum(rows for _, rows, _ in shapes) + work) as advance:
        read = [source.read(advance, allocate) for source in sources]
        sides = numbered(side for group, _ in read for side in group)
        ids = _ids(read, runtime)
        data = Embeddings.from_sides(sides, ids, advance)
    note_empty(origin.files, [shard.path for shard in data.shards], runtime)
    if lonely and observer is None:
        warnings.warn(lonely, stacklevel=3)  # above the decorator
    elif lonely:
        runtime.note(WARNING, lonely)
    return replace(data, origin=origin.absolute())


def open_again(origin: Origin) -> list[Side]:
    """Open the sides of embeddings that another process has read and checked.

    Values are not checked again. What cannot be mapped goes to temporary files, since other
    processes of this machine need its memory too.

    Raises:
        InputError: a file is missing, or not as it was there.
        ResourceError: the disk of temporary files has no room.
    """
    origin.require_same()
    sources = _open(replace(origin, wanted=replace(origin.wanted, id="")))  # ids were compared
    return numbered(side for source in sources for side in source.read(silent, scratch_array)[0])


def _from_arrays(paths: Any, pair: Any, negatives: Any, wanted: Wanted) -> Embeddings:
    if not in_memory(paths) or not (pair is None or in_memory(pair)):
        raise InputError(
            "paths and pair: got an array and a path, expected two arrays or two paths"
        )
    wanted.refuse("arrays")
    negatives = None if _unwanted(negatives) else negatives
    return Embeddings.from_arrays(paths, pair, negatives=negatives)


def _unwanted(negatives: Any) -> bool:
    """Return whether no negatives are to be read. Arrays compare by element, hence the check of
    type."""
    return isinstance(negatives, str) and negatives == NO_NEGATIVES


def _files(paths: Any, pair: Any, negatives: Any, order: ShardOrder | None) -> Files:
    """Return the files of x, of y and of each source of negatives."""
    if in_memory(negatives):
        raise InputError("negatives: got an array with paths, expected paths too")
    named = negatives if isinstance(negatives, list | tuple) else [negatives]
    sources = [source for source in named if source is not None and not _unwanted(source)]
    mined = [find_shards(source, "negatives", order) for source in sources]
    x = find_shards(paths, "x", order)
    return x, [] if pair is None else find_shards(pair, "y", order), mined


def numbered(sides: Iterable[Side]) -> list[Side]:
    """Return the sides, with the names ``negative_1``, ``negative_2``, ... for all but x and y."""
    number, out = 0, []
    for side in sides:
        if side.name not in ("x", "y"):
            number += 1
            side = replace(side, name=f"negative_{number}")
        out.append(side)
    return out


def _open(origin: Origin) -> Sources:
    """Read the headers: a source that may have both sides and negatives, or one for each side, and
    the headers of other negatives."""
    wanted = origin.wanted

    def opened(files: Sequence[ShardPath], *sides: str, **columns: Any) -> Sources:
        return [*format_of(files[0]).sources(files, sides, Wanted(id=wanted.id, **columns))]

    if origin.y:
        sources = opened(origin.x, "x", x=wanted.x) + opened(origin.y, "y", y=wanted.y)
    else:
        own = wanted.negatives and not origin.negatives
        sources = opened(origin.x, "x", "y", x=wanted.x, y=wanted.y, negatives=own)
    for files in origin.negatives:
        sources += opened(files, "negatives")
    if origin.y and wanted.id and not any(source.id for source in sources[:2]):
        raise InputError(
            f"id column {wanted.id!r}: neither {origin.x[0]} nor {origin.y[0]} has this column; "
            "name a column of one of them, or leave it out"
        )
    return sources


def _where_they_fit(sources: Sources, runtime: Runtime) -> Allocate:
    """Return how to allocate decoded or converted rows: in memory, or in temporary files if they
    take more than half of the memory left. Mapped files need neither."""
    need, kept = sum(source.need for source in sources), sum(source.kept for source in sources)
    if not kept or 2 * need <= runtime.memory_left():
        allocate: Allocate = np.empty
    else:
        allocate, need = scratch_array, need - kept
    hint = "save them as float16 or float32 NPY, which is mapped"
    runtime.require_memory(need, "the embeddings", hint)
    if allocate is scratch_array:
        runtime.note(SCRATCH, f"{format_bytes(kept)} in {scratch_folder()}, until the run ends")
    return allocate


def _check_id_types(origin: Origin) -> None:
    """Refuse ids of several files that cannot be compared, since one has another type."""
    groups = (origin.x, origin.y, *origin.negatives)
    files = [paths[0] for paths in groups if paths and has_columns(paths[0])]
    if len(files) > 1 and origin.wanted.id is None:
        from batchplan.data.table_files import check_types

        check_types(files)


def _ids(read: Sequence[tuple[list[Side], pa.Array | None]], runtime: Runtime) -> pa.Array | None:
    """Return the ids of x, else of y. The ids of y and of negatives must not contradict them."""
    present = [(ids, sides[0]) for sides, ids in read if ids is not None]
    if not present or present[0][1].name == "negatives":
        return None
    from batchplan.data.ids import Ids, check_same, checked_ids

    first, *others = (Ids(ids, side.name, side.place) for ids, side in present)
    checked = checked_ids(first._replace(name=f"ids of {first.name}"))
    for other in others:
        check_same(first, other, lambda note: runtime.note(NOTE, note))
    return checked
