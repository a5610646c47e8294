"""A table of negatives: for each anchor the rows that are its negatives, and how it is saved."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.plans.formats.contents import Document, document_bytes, parse_document
from batchplan.plans.formats.parquet import has_metadata, opened, take_ids
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.output import check_output
from batchplan.plans.validation import Int64Array, check_range

_KEY = b"batchplan-negatives"
_ROW_GROUP = 1 << 16
_SUFFIX = ".parquet"

Float32Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Negatives:
    """Which rows are negatives of which: n anchors with M negatives each.

    Attributes:
        anchors: int64 (n,), distinct row numbers, read-only.
        negatives: int64 (n, M), of each anchor M distinct rows, never the anchor, read-only.
        probabilities: float32 (n, M), the probability of that negative in a single draw for its
            anchor; 1 where it was not drawn but chosen.
        mixup: float32 (n, M) coefficients nu of the latent mixup, from 0 to 1, or None.
        metadata: how the table was made and for which data. Its ``batch_size`` is the one that was
            asked for, and ``partitions_rows`` is False.

    Raises:
        InputError: shapes that do not fit, a row out of range, an anchor twice, a negative that is
            its anchor or twice with one anchor, a probability or coefficient outside 0 to 1.
    """

    anchors: Int64Array
    negatives: Int64Array
    probabilities: Float32Array
    mixup: Float32Array | None
    metadata: PlanMetadata

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            if (given := getattr(self, name)) is not None:
                view = np.ascontiguousarray(given, dtype=dtype).view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)
        _check(self, "negatives")

    @property
    def per_anchor(self) -> int:
        """M."""
        return int(self.negatives.shape[1])

    def __len__(self) -> int:
        return len(self.anchors)

    def with_metrics(self, **metrics: Any) -> Negatives:
        """The same table, with more facts known at planning time in its metadata."""
        known = {**self.metadata.metrics, **metrics}
        return replace(self, metadata=replace(self.metadata, metrics=known))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        ids: Any = None,
        inputs: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """Write the table as Parquet; the same table gives the same bytes.

        Columns ``row`` int64, ``negatives`` list<int64>, ``probabilities`` list<float>, where there
        are coefficients ``mixup`` list<float>, and where there are ids ``id``, that of the anchor.

        Args:
            path: a file of suffix ``.parquet``.
            force: whether an existing file may be replaced.
            ids: (num_rows,), NumPy or Arrow, the id of each row of the data, or None.
            inputs: files and folders that must not be written to.

        Raises:
            InputError: the path cannot be used, or ids do not fit the data.
            OutputError: writing failed; what was there before is still there.
        """
        check_table_output(path, force=force, inputs=inputs)
        document = {**self.metadata.to_dict(), "digest": _digest(self)}
        write_files({Path(path): lambda stream: _write(stream, self, document, ids)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Negatives:
        """Read a table that `save` wrote, and check all of it.

        Raises:
            InputError: the file is missing or broken, is no such table, or was edited.
        """
        table, document = _read(Path(path))
        metadata = PlanMetadata.from_dict(document, where=str(path))
        parts = {name: _column(table, name, str(path)) for name in _COLUMNS}
        try:
            made = cls(**parts, metadata=metadata)  # type: ignore[arg-type]
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        if document.get("digest") != _digest(made):
            raise InputError(
                f"{path}: the metadata belong to other negatives (their digest differs): the file "
                "was edited; plan again"
            )
        return made

    def require_match(self, num_rows: int, fingerprint: str | None) -> None:
        """Require that the table was made for this data.

        Raises:
            InputError: another number of rows, or, where both are known, another fingerprint.
        """
        self.metadata.require_match(num_rows, fingerprint, "negatives")


_DTYPES: dict[str, type[np.generic]] = {
    "anchors": np.int64,
    "negatives": np.int64,
    "probabilities": np.float32,
    "mixup": np.float32,
}
_COLUMNS = {"anchors": "row", **{name: name for name in ("negatives", "probabilities", "mixup")}}


def check_table_output(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    inputs: Sequence[str | os.PathLike[str]] = (),
) -> None:
    """Refuse an output path that a table of negatives cannot be saved at.

    Raises:
        InputError: a suffix other than ``.parquet``, or as `check_output`.
    """
    if Path(path).suffix.lower() != _SUFFIX:
        raise InputError(
            f"{path}: a table of negatives is saved as {_SUFFIX}; choose such a name, or ask for a "
            "plan of batches with --as-batches"
        )
    check_output(path, force=force, inputs=inputs)


def is_negatives(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a table of negatives, judged by its suffix and its metadata."""
    file = Path(path)
    return file.suffix.lower() == _SUFFIX and file.is_file() and has_metadata(file, _KEY)


def _check(table: Negatives, where: str) -> None:
    anchors, negatives = table.anchors, table.negatives
    shape = negatives.shape
    if len(shape) != 2 or 0 in shape or shape[0] != len(anchors):
        raise InputError(f"{where}: got shape {shape} for {len(anchors)} anchors, expected (n, M)")
    for values, name in ((anchors, "anchors"), (negatives.ravel(), "negatives")):
        check_range(values, table.metadata.num_rows, f"{where}, {name}")
    if len(np.unique(anchors)) != len(anchors):
        raise InputError(f"{where}: an anchor occurs twice, expected each once")
    own = (negatives == anchors[:, None]).any(axis=1)
    ordered = np.sort(negatives, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    for wrong, what in ((own, "is its own negative"), (twice, "has a negative twice")):
        if wrong.any():
            raise InputError(f"{where}: row {anchors[wrong.argmax()]} {what}; plan again")
    for name in ("probabilities", "mixup"):
        if (given := getattr(table, name)) is not None and (
            given.shape != shape or not ((given >= 0) & (given <= 1)).all()
        ):
            raise InputError(f"{where}: {name}: expected one number of 0 to 1 for each negative")


def _digest(table: Negatives) -> str:
    digest = hashlib.sha256()
    for name, dtype in _DTYPES.items():
        if (values := getattr(table, name)) is not None:
            digest.update(f"{name} {values.shape}".encode())
            digest.update(values.astype(np.dtype(dtype).newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def _write(stream: BinaryIO, table: Negatives, document: Document, ids: Any) -> None:
    batches = _batches(table, ids)
    first = next(batches)
    schema = first.schema.with_metadata({_KEY: document_bytes(document)})
    with pq.ParquetWriter(stream, schema) as writer:
        for batch in (first, *batches):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def _batches(table: Negatives, ids: Any) -> Iterator[pa.RecordBatch]:
    """One for each row group, so that 32-bit offsets of lists are enough."""
    for start in range(0, len(table), _ROW_GROUP):
        part = slice(start, start + _ROW_GROUP)
        columns: dict[str, Any] = {}
        for name, column in _COLUMNS.items():
            if (values := getattr(table, name)) is None:
                continue
            block = values[part]
            flat = pa.array(block.ravel())
            if block.ndim == 2:
                offsets = np.arange(0, block.size + 1, block.shape[1], dtype=np.int32)
                flat = pa.ListArray.from_arrays(pa.array(offsets), flat)
            columns[column] = flat
        if ids is not None:
            taken = take_ids(ids, table.anchors[part], table.metadata.num_rows)
            columns["id"] = taken.combine_chunks() if hasattr(taken, "num_chunks") else taken
        yield pa.RecordBatch.from_pydict(columns)


def _read(path: Path) -> tuple[pa.Table, Document]:
    with opened(path, "a table of negatives") as file:
        table = file.read()
    stored = (table.schema.metadata or {}).get(_KEY)
    if stored is None:
        raise InputError(
            f"{path}: no table of negatives, which the planners scns and hardneg write; is it a "
            "plan or embeddings?"
        )
    return table, parse_document(stored, str(path))


def _column(table: pa.Table, name: str, where: str) -> NDArray[Any] | None:
    """A column as an array: (n,) of the anchors, (n, M) of lists; None for mixup if absent."""
    column, lists = _COLUMNS[name], name != "anchors"
    if column not in table.column_names:
        if name == "mixup":
            return None
        raise InputError(f"{where}: no column {column!r}; plan again")
    array = table.column(column).combine_chunks()
    wanted = pa.from_numpy_dtype(_DTYPES[name])
    if array.type != (pa.list_(wanted) if lists else wanted):
        raise InputError(
            f"{where}, column {column}: got {array.type}, expected {'lists of ' * lists}{wanted}; "
            "plan again"
        )
    flat = array.flatten() if lists else array
    even = not lists or bool((np.diff(array.offsets.to_numpy()) * len(array) == len(flat)).all())
    if array.null_count or flat.null_count or not even:
        raise InputError(
            f"{where}, column {column}: expected no nulls{' and lists of one length' * lists}; "
            "plan again"
        )
    values: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    return values.reshape(len(array), -1) if lists else values
