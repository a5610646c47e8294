"""Ids in files with columns, and whether those of other files agree with the data's."""

import warnings
from collections.abc import Iterable, Sequence

from batchplan.data.arrow_types import id_type
from batchplan.data.candidates import Data
from batchplan.data.columns import DEFAULT_ID, choose_ids
from batchplan.data.ids import Ids, check_same
from batchplan.data.table_files import checked, opened
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath


def files_of(side: str, embeddings: Data) -> Sequence[ShardPath]:
    """Return the files with columns of a side, ``x`` or ``y``; none if it has other files."""
    return [one.location for one in embeddings.shards if side in one.side and one.location]


def check_types(paths: Iterable[ShardPath]) -> None:
    """Refuse columns ``id`` of several files, one of which cannot be compared with the others.

    Raises:
        InputError: names the files and the types.
    """
    found = {}
    for path in paths:
        with opened(path) as file:
            if file.num_rows and file.schema.names.count(DEFAULT_ID) == 1:
                found[path] = file.schema.field(DEFAULT_ID).type
    if len(found) > 1 and None in map(id_type, found.values()):
        held = " and ".join(f"{kind!s:.60} in {path}" for path, kind in found.items())
        raise InputError(
            f"column {DEFAULT_ID!r}: got {held}, which cannot be compared; write integers or "
            "strings, or compare no ids with id_column='' (--id-column '')"
        )


def check_rows(table: ShardPath, embeddings: Data) -> None:
    """Refuse a table of the rows of the data that has other ids, or the same in another order.

    Ids of which none is one of the data pass with a warning, since they may be those of the other
    side.

    Raises:
        InputError: as `check_same` and `check_types`.
    """
    check_types_with(embeddings, [table])
    if embeddings.ids is None:
        return
    wanted = None if embeddings.origin is None else embeddings.origin.wanted.id
    files = checked(
        [table], lambda file, path: choose_ids(file.schema, wanted, str(path), required=False)
    )
    name = files.alike()
    if name is None or files.num_rows != embeddings.num_rows:  # the caller refuses the number
        return
    ids = files.ids(name)
    check_same(Ids(embeddings.ids, "the data"), Ids(ids, str(table)), warnings.warn)


def check_types_with(embeddings: Data, others: Sequence[ShardPath]) -> None:
    """`check_types` for the files of the data and the first of some others, unless a column of ids
    is named."""
    if embeddings.origin is None or embeddings.origin.wanted.id is None:
        firsts = [*files_of("x", embeddings)[:1], *files_of("y", embeddings)[:1], *others[:1]]
        check_types(dict.fromkeys(firsts))
