"""The text columns of a data set, and their texts as numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.data.answers import Answers, first_places
from batchplan.data.arrow_types import is_list, is_text, plain
from batchplan.data.memory import is_transformed
from batchplan.data.text_numbers import text_numbers
from batchplan.data.texts import LABELS, paired_columns, strings_of
from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.planners import PLANNERS
from batchplan.typing import Int32Array, Int64Array

_AT_ONCE = 1 << 14  # rows that are read
_NAMED = "group_column", "source_column", "anchor_id", "positive_id"
_MOST_UNUSED = 8  # rows of the table for each one that was selected, to number all of them


class TextColumns:
    """The columns of text of a data set: the anchor, its positive, and mined negatives.

    Args:
        dataset: a datasets.Dataset.
        most: number of columns to embed, at most; None for all.

    Attributes:
        dataset: the data set.
        names: the names of the columns, in their order.
        embedded: those that are embedded.

    Raises:
        InputError: the data set has another type.
    """

    def __init__(self, dataset: Any, most: int | None = None) -> None:
        if not (hasattr(dataset, "column_names") and hasattr(dataset, "__len__")):
            raise InputError(
                f"data set: got a {type(dataset).__name__}, expected a datasets.Dataset"
            )
        self.dataset = dataset
        self.names = [name for name in dataset.column_names if name not in LABELS]
        self.embedded = self.names[:most]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "dataset": None}  # checkpoints hold no data

    def __len__(self) -> int:
        return len(self.dataset)

    def is_of(self, dataset: Any) -> bool:
        """Return whether a data set is this one, by its fingerprint."""
        mark = getattr(self.dataset, "_fingerprint", None)
        same = mark is not None and getattr(dataset, "_fingerprint", None) == mark
        return dataset is self.dataset or same

    def texts(self, rows: Int64Array) -> dict[str, pa.ChunkedArray]:
        """Return the texts of rows, by column that is embedded.

        Raises:
            InputError: a column has other values than texts, or nulls.
        """
        taken = self.dataset[rows.tolist()]
        return {name: _strings(taken[name], name) for name in self.embedded}

    def parts_of(self, name: str) -> Iterator[list[str]]:
        """Yield the texts of a column, some at a time."""
        for part in self._parts([name]):
            yield part[name].to_pylist()

    def codes(self, names: Sequence[str] | None = None) -> Int32Array:
        """int32 (columns, N), the number of the text of each row in some columns, None for all.
        Equal texts have the same number, in any column.

        Raises:
            InputError: as `texts`.
        """
        names = self.names if names is None else names
        indices = getattr(self.dataset, "_indices", None)
        rows = None if indices is None else indices.column(0).to_numpy()
        if not self._is_stored or _MOST_UNUSED * len(self) < self.dataset.data.num_rows:
            parts = list(self._parts(names))
            each = [part[name] for name in names for part in parts]
            rows = None
        else:  # rows that were selected or shuffled would be read one by one
            each = [_strings(self.dataset.data.column(name), name, rows) for name in names]
        numbers = text_numbers([chunk for texts in each for chunk in texts.chunks])
        numbers = numbers.reshape(len(names), -1)
        return numbers if rows is None else np.take(numbers, rows, axis=1)

    @property
    def _is_stored(self) -> bool:
        """Whether the rows are those of a table, and not what a transform makes of them."""
        return hasattr(self.dataset, "with_format") and not is_transformed(self.dataset)

    def _parts(self, names: Sequence[str]) -> Iterator[dict[str, pa.ChunkedArray]]:
        """Yield the texts of some rows after the other, by column; as `texts`, but faster."""
        dataset = self.dataset.with_format("arrow") if self._is_stored else self.dataset
        for start in range(0, len(self), _AT_ONCE):
            rows = dataset[start : start + _AT_ONCE]
            yield {name: _strings(rows[name], name) for name in names}


def answers_of(codes: Int32Array) -> Answers:
    """Return the known answers of texts. A text answers itself: if the positive of one row is the
    anchor of another, the two must not meet.

    Args:
        codes: as `TextColumns.codes` returns them. One column is its own positive.
    """
    both = _on_both_sides(codes)
    return Answers.of(codes[0], codes[1:] if len(codes) > 1 else codes, (both, both))


def _on_both_sides(codes: Int32Array) -> Int64Array:
    """Return the numbers of the texts that are anchors and documents."""
    seen = np.zeros((2, 1 + int(codes.max())), np.bool_)
    seen[0, codes[0]] = seen[1, codes[1:]] = True
    return np.flatnonzero(seen.all(axis=0))


def first_rows(codes: Int32Array) -> list[Int64Array]:
    """Return the first row with the text of each row: int64 (N,) for each column.

    Args:
        codes: as `TextColumns.codes` returns them.
    """
    return [first_places(side) for side in codes]


class TextIds:
    """The files in which a planner finds the texts of the rows, as numbers, and its options.

    Args:
        folder: where to write ``texts.parquet``, with a column of numbers for each column of texts,
            and ``known.parquet``. There, each text that is both an anchor and a document answers
            itself, so that the positive of a row never meets the same text as an anchor.
        names: the names of the columns of texts.
        own_table: the user's own label table, whose columns are kept; None if there is none.

    Attributes:
        options: of the planner.
    """

    def __init__(self, folder: Path, names: Sequence[str], own_table: str | None) -> None:
        self._own_table = own_table
        self._ids = [f"batchplan_text_{name}" for name in names]
        self._paths = [folder / "texts.parquet", folder / "known.parquet"]
        self.options = {
            "anchor_id": self._ids[0],
            "positive_id": self._ids[:2][-1],
            "negative_id": self._ids[2:] or None,
            **dict(zip(("label_table", "known"), map(str, self._paths), strict=True)),
        }

    def write(self, codes: Int32Array) -> None:
        """Write the files.

        Args:
            codes: as `TextColumns.codes` returns them.

        Raises:
            InputError: the user's table has another number of rows.
        """
        rows = pa.table(dict(zip(self._ids, codes, strict=True)))
        if self._own_table is not None:
            own = pq.read_table(self._own_table)
            if len(own) != len(rows):
                raise InputError(
                    f"{self._own_table}: has {len(own)} rows, expected {len(rows)}, one for each "
                    "row of the data set"
                )
            for name in own.column_names:
                rows = rows.append_column(own.field(name), own[name])
        both = _on_both_sides(codes)
        known = pa.table({"anchor": both, "document": both})
        tables = zip(self._paths, (rows, known), strict=True)
        write_files({path: partial(pq.write_table, table) for path, table in tables})


def ids_of(
    dataset: Any,
    folder: Path,
    options: Mapping[str, Any],
    planner: str,
    columns: TextColumns | None = None,
) -> dict[str, Any]:
    """Return arguments of `EpochPlans` by which a planner knows which rows of a data set it must
    keep apart: by the columns that the options name, unless there is a label table; and, if it has
    a guard that is not turned off and no ids are named, by texts.

    Args:
        dataset: the rows.
        folder: where to write the files that the planner reads.
        options: of the planner.
        planner: its name.
        columns: the texts of the rows; also returned are then the first rows with the same text, in
            those that are embedded. By default the columns ``anchor`` and ``positive`` and those of
            mined negatives, if the data set has the first two.
    """
    labels = [options[name] for name in _NAMED if options.get(name)]
    labels += options.get("negative_id") or []
    there = {*labels} <= {*getattr(dataset, "column_names", ())}
    reads = bool(labels) and there and options.get("label_table") is None
    path = folder / "labels.parquet"
    more: dict[str, Any] = {"label_table": str(path)} if reads else {}
    names, embedded = (
        (_pairs(dataset), []) if columns is None else (columns.names, columns.embedded)
    )
    ids = None
    if names and _known_by_texts(options, planner):
        ids = TextIds(folder, names, {**options, **more}.get("label_table"))
        more |= ids.options

    def same() -> list[Int64Array]:
        if reads:
            table = dataset.select_columns(sorted({*labels})).with_format("arrow")[:]
            write_files({path: partial(pq.write_table, table)})
        numbered = embedded if ids is None else names
        if not numbered:
            return []  # of vectors
        codes = (TextColumns(dataset) if columns is None else columns).codes(numbered)
        if ids is not None:
            ids.write(codes)
        return first_rows(codes[: len(embedded)])

    return {**more, "same": same} if more or embedded else {}


def _pairs(dataset: Any) -> list[str]:
    """Return the names of the columns of texts of a data set with an anchor and a positive."""
    strings = strings_of(getattr(getattr(dataset, "features", None), "arrow_schema", ()))
    return paired_columns(strings) if {"anchor", "positive"} <= {*strings} else []


def _known_by_texts(options: Mapping[str, Any], planner: str) -> bool:
    """Return whether texts say which rows a planner keeps apart: it has a guard, which is not
    turned off, and no ids are named."""
    known = (
        {field.name for field in fields(PLANNERS[planner].options)} if planner in PLANNERS else ()
    )
    named = options.keys() & {"anchor_id", "positive_id"}
    return "anchor_id" in known and options.get("guard") is not False and not named


def _strings(values: Any, column: str, rows: Int64Array | None = None) -> pa.ChunkedArray:
    """Return the values of a column as strings or large strings. Those of other ``rows``, if these
    are given, may be null."""
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
            texts = plain(values)
            texts = texts if texts.type == pa.string() else texts.cast(pa.large_string())
        else:
            texts = pa.chunked_array([pa.array(values, pa.large_string())])
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"column {column!r}: expected texts ({error})") from None
    nulls = texts.null_count
    if nulls and rows is not None:
        nulls = int(texts.is_null().to_numpy()[rows].sum())
    if nulls:
        raise InputError(f"column {column!r}: has {nulls} rows without text; drop them")
    return texts
