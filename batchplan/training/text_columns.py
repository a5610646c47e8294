"""The text columns of a data set, and which rows share a text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from batchplan.data.answers import Answers, first_places
from batchplan.data.arrow_types import is_list, is_text, plain
from batchplan.data.texts import LABELS
from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.typing import Int64Array

GROUPS = "batchplan_texts"  # the column of groups of rows that share a text

_AT_ONCE = 1 << 14  # texts that are compared


class TextColumns:
    """The columns of text of a data set: the anchor, its positive, and mined negatives.

    Args:
        dataset: a datasets.Dataset.
        most: number of columns to take, at most; None for all.

    Attributes:
        dataset: the data set.
        names: the names of the columns, in their order.

    Raises:
        InputError: the data set has another type.
    """

    def __init__(self, dataset: Any, most: int | None = None) -> None:
        if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
            raise InputError(
                f"data set: got a {type(dataset).__name__}, expected a datasets.Dataset"
            )
        self.dataset = dataset
        self.names = [name for name in dataset.column_names if name not in LABELS][:most]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "dataset": None}  # checkpoints hold no data

    def __len__(self) -> int:
        return len(self.dataset)

    def is_of(self, dataset: Any) -> bool:
        """Return whether a data set is this one, by its fingerprint."""
        mark = getattr(self.dataset, "_fingerprint", None)
        same = mark is not None and getattr(dataset, "_fingerprint", None) == mark
        return dataset is self.dataset or same

    def texts(self, rows: Int64Array) -> dict[str, pa.Array]:
        """Return the texts of rows, by column.

        Raises:
            InputError: a column has other values than texts, or nulls.
        """
        taken = self.dataset[rows.tolist()]
        return {name: _strings(taken[name], name) for name in self.names}

    def parts_of(self, name: str) -> Iterator[list[str]]:
        """Yield the texts of a column, some at a time."""
        for start in range(0, len(self), _AT_ONCE):
            texts: list[str] = _strings(
                self.dataset[start : start + _AT_ONCE][name], name
            ).to_pylist()
            yield texts

    def codes(self) -> Int64Array:
        """int64 (columns, N), the number of the text of each row. Equal texts have the same number,
        in any column."""
        parts: dict[str, list[pa.Array]] = {name: [] for name in self.names}
        custom = getattr(self.dataset, "format", {}).get("type") == "custom"
        quick = hasattr(self.dataset, "with_format") and not custom
        dataset = self.dataset.with_format("arrow") if quick else self.dataset
        for start in range(0, len(self), _AT_ONCE):
            rows = dataset[start : start + _AT_ONCE]
            for name in self.names:
                parts[name].append(_strings(rows[name], name))
        texts = pa.chunked_array([part for name in self.names for part in parts[name]])
        coded = texts.combine_chunks().dictionary_encode()
        codes: Int64Array = coded.indices.to_numpy().astype(np.int64).reshape(len(self.names), -1)
        return codes


def answers_of(codes: Int64Array) -> Answers:
    """Return the known answers of texts. A text answers itself: if the positive of one row is the
    anchor of another, the two must not meet.

    Args:
        codes: as `TextColumns.codes` returns them. One column is its own positive.
    """
    own = np.arange(1 + int(codes.max()))
    return Answers.of(codes[0], codes[1:] if len(codes) > 1 else codes, (own, own))


def first_rows(codes: Int64Array) -> list[Int64Array]:
    """Return the first row with the text of each row: int64 (N,) for each column.

    Args:
        codes: as `TextColumns.codes` returns them.
    """
    return [first_places(side) for side in codes]


def shared_texts(codes: Int64Array, most: int) -> Int64Array:
    """Groups of rows that share a text across columns, directly or through other rows: the text is
    the anchor of one row and the positive of another.

    Leave out mined negatives: nearly all are positives of other rows, so that most rows would be
    one group. A guard puts such rows into different batches because they are similar.

    Args:
        codes: int64 (anchor and positive, N), the number of the text of each row.
        most: rows of the largest group: batches cannot keep more rows apart. Of larger groups,
            rows with the same most frequent text become a group.

    Returns:
        int64 (N,): the group of each row, -1 for none.
    """
    columns, rows = codes.shape
    count = int(codes.max()) + 1
    seen = sum((np.bincount(np.unique(side), minlength=count) for side in codes), np.zeros(count))
    crossing = seen[codes] > 1
    row = np.broadcast_to(np.arange(rows), (columns, rows))[crossing]
    size = rows + count
    links = coo_array((np.ones(len(row), np.int8), (row, rows + codes[crossing])), (size, size))
    groups = connected_components(links, directed=False)[1][:rows].astype(np.int64)
    often = np.where(crossing, np.bincount(codes[crossing], minlength=count)[codes], 0)
    commonest = np.take_along_axis(codes, often.argmax(0)[None], 0)[0]
    large = np.bincount(groups)[groups] > most
    groups[large] = size + commonest[large]
    sizes = np.bincount(groups)[groups]
    return np.where(sizes > 1, groups, -1)


def write_groups(path: Path, groups: Int64Array, own_table: str | None) -> None:
    """Write the label table from which a planner reads groups.

    Args:
        path: the Parquet file to write.
        groups: int64 (N,), the group of each row, -1 for none.
        own_table: the user's own label table, whose columns are kept; None if there is none.

    Raises:
        InputError: the user's table has another number of rows.
    """
    what = {"description": "rows with the same number share a text, and are no negatives"}
    field = pa.field(GROUPS, pa.int64(), metadata=what)
    table = pa.table([pa.array(groups, mask=groups < 0)], pa.schema([field]))
    if own_table is not None:
        own = pq.read_table(own_table)
        if len(own) != len(groups):
            raise InputError(
                f"{own_table}: has {len(own)} rows, expected {len(groups)}, one for each row of "
                "the data set"
            )
        table = own.append_column(field, table[GROUPS])
    write_files({path: lambda stream: pq.write_table(table, stream)})


def _strings(values: Any, column: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        listed = is_list(values.type)
    else:
        listed = any(isinstance(value, list | tuple) for value in values)
    if listed:
        raise InputError(
            f"column {column!r}: has lists, expected texts; give each text a column of its own, "
            f"such as {column}_1 and {column}_2"
        )
    try:
        if isinstance(values, pa.ChunkedArray):
            if not is_text(values.type):  # a cast would write numbers as texts
                raise TypeError(f"got {values.type}")
            texts = plain(values).combine_chunks().cast(pa.large_string())
        else:
            texts = pa.array(values, pa.large_string())
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"column {column!r}: expected texts ({error})") from None
    if texts.null_count:
        raise InputError(f"column {column!r}: has {texts.null_count} rows without text; drop them")
    return texts
