"""A table of negatives: the negatives of each anchor, loaded and saved."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from batchplan.data.formats import parquet
from batchplan.data.formats.tables import TableFile
from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.files.inputs import PathLike
from batchplan.files.remote import no_url
from batchplan.plans.formats.contents import document_bytes, parse_document
from batchplan.plans.formats.parquet import (
    NEGATIVES_KEY,
    has_metadata,
    require_plausible,
    stored_ids,
)
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.output import check_output
from batchplan.plans.validation import check_range
from batchplan.typing import Float32Array, Int64Array

_SUFFIX = ".parquet"
_ROW_GROUP = 1 << 16
_ENTRY_BYTES = 32  # of memory that a negative takes while the table is read and checked
_DTYPES = {"anchors": "<i8", "negatives": "<i8", "probabilities": "<f4", "mixup": "<f4"}


@dataclass(frozen=True, eq=False)
class Negatives:
    """The negatives of each anchor: n anchors with M negatives each.

    Attributes:
        anchors: int64 (n,), distinct row numbers, read-only.
        negatives: int64 (n, M), M distinct rows per anchor, never the anchor itself, read-only.
        metadata: how the table was made and for which data. ``batch_size`` is the option, and
            ``partitions_rows`` is False.
        probabilities: float32 (n, M), the probability of each negative in a single draw for its
            anchor; None if they were not drawn.
        mixup: float32 (n, M), coefficients nu from 0 to 1 of pseudo negatives: nu times the vector
            of the negative plus 1 - nu times the vector of the anchor's positive; None without any.

    Raises:
        InputError: shapes that do not fit, a row out of range, a repeated anchor, a negative that
            is its own anchor or repeated, a probability or coefficient outside 0 to 1.
    """

    anchors: Int64Array
    negatives: Int64Array
    metadata: PlanMetadata
    probabilities: Float32Array | None = None
    mixup: Float32Array | None = None

    def __post_init__(self) -> None:
        for name, values in self._arrays().items():
            view = np.ascontiguousarray(values, _DTYPES[name]).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        anchors, rows, num_rows = self.anchors, self.negatives, self.metadata.num_rows
        shape = rows.shape
        if len(shape) != 2 or 0 in shape or shape[0] != len(anchors):
            raise InputError(
                f"negatives: got shape {shape} for {len(anchors)} anchors, expected (n, M)"
            )
        check_range(anchors, num_rows, "negatives, anchors")
        check_range(rows.ravel(), num_rows, "negatives, negatives")
        if len(np.unique(anchors)) != len(anchors):
            raise InputError("negatives: an anchor occurs twice, expected each once")
        own = (rows == anchors[:, None]).any(axis=1)
        ordered = np.sort(rows, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        for wrong, problem in ((own, "is its own negative"), (twice, "has a negative twice")):
            if wrong.any():
                raise InputError(f"negatives: row {anchors[wrong.argmax()]} {problem}; plan again")
        for name in ("probabilities", "mixup"):
            shares = getattr(self, name)
            if shares is not None and (
                shares.shape != shape or not ((shares >= 0) & (shares <= 1)).all()
            ):
                raise InputError(f"negatives, {name}: expected a number from 0 to 1 for each")

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that the table has, by name."""
        named = {name: getattr(self, name) for name in _DTYPES}
        return {name: values for name, values in named.items() if values is not None}

    @property
    def per_anchor(self) -> int:
        """M."""
        return int(self.negatives.shape[1])

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def digest(self) -> str:
        """SHA-256 over names, shapes and values."""
        hasher = hashlib.sha256()
        for name, values in self._arrays().items():
            hasher.update(f"{name} {values.shape}".encode())
            hasher.update(values.astype(_DTYPES[name], copy=False).data)
        return hasher.hexdigest()

    def save(
        self,
        path: PathLike,
        *,
        force: bool = False,
        ids: Any = None,
        inputs: Sequence[PathLike] = (),
    ) -> None:
        """Write the table as Parquet; the same table gives the same bytes.

        Columns: ``row`` int64, ``negatives`` fixed_size_list<int64>, ``probabilities`` and
        ``mixup`` fixed_size_list<float> if any, and ``id`` of the anchor if there are ids.

        Args:
            path: a file with the suffix ``.parquet``.
            force: whether an existing file may be replaced.
            ids: (num_rows,), NumPy or Arrow, the id of each row of the data, or None.
            inputs: files and folders that must not be written to.

        Raises:
            InputError: the path cannot be used, or ids do not fit the data.
            OutputError: writing failed; existing files are unchanged.
        """
        check_table_output(path, force=force, inputs=inputs)
        columns: dict[str, Any] = {"row": self.anchors}
        for name, values in [*self._arrays().items()][1:]:
            flat = pa.array(values.ravel())
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, self.per_anchor)
        if ids is not None:
            columns["id"] = stored_ids(ids, self.metadata.num_rows).take(pa.array(self.anchors))
        document = document_bytes({**self.metadata.to_dict(), "digest": self.digest})
        table = pa.table(columns).replace_schema_metadata({NEGATIVES_KEY: document})
        write_files(
            {Path(path): lambda stream: pq.write_table(table, stream, row_group_size=_ROW_GROUP)}
        )

    @classmethod
    def load(cls, path: PathLike) -> "Negatives":
        """Read and check a table that `save` wrote.

        Raises:
            InputError: the file is missing or broken, is not such a table, or was edited.
        """
        with parquet.FORMAT.opened(no_url(path)) as file:
            stored = (file.schema.metadata or {}).get(NEGATIVES_KEY)
            if stored is None:
                raise InputError(
                    f"{path}: is not a table of negatives, as the planners scns and hardneg write; "
                    "is it a plan or embeddings?"
                )
            arrays = _read_arrays(file, no_url(path))
        document = parse_document(stored, str(path))
        metadata = PlanMetadata.from_dict(document, where=str(path))
        try:
            table = cls(**arrays, metadata=metadata)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        if document.get("digest") != table.digest:
            raise InputError(
                f"{path}: the metadata belong to other negatives (the digest differs), so the file "
                "was edited; plan again"
            )
        return table

    def require_match(self, num_rows: int, fingerprint: str | None) -> None:
        """Require that the table was made for this data.

        Raises:
            InputError: another number of rows, or another fingerprint if both are known.
        """
        self.metadata.require_match(num_rows, fingerprint, "negatives")


def is_negatives(path: PathLike) -> bool:
    """Return whether a file is a table of negatives, judged by its suffix and its metadata; raises
    InputError for a URL."""
    file = no_url(path)
    return (
        file.suffix.lower() == _SUFFIX
        and os.path.isfile(file)
        and has_metadata(file, NEGATIVES_KEY)
    )


def check_table_output(
    path: PathLike, *, force: bool = False, inputs: Sequence[PathLike] = ()
) -> None:
    """Refuse an output path at which a table of negatives cannot be saved.

    Raises:
        InputError: a suffix other than ``.parquet``, or as `check_output`.
    """
    if no_url(path).suffix.lower() != _SUFFIX:
        raise InputError(
            f"{path}: a table of negatives needs the suffix {_SUFFIX}; rename it, or make "
            "a plan of batches with --as-batches"
        )
    check_output(path, force=force, inputs=inputs)


def _read_arrays(file: TableFile, path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of the columns, by the names of `Negatives`.

    Raises:
        InputError: other columns than `Negatives.save` writes, or nulls.
    """
    names = ("row", "negatives", "probabilities", "mixup")
    schema = pa.schema([field for field in file.schema if field.name in names])
    kinds = schema.types
    size = next((kind.list_size for kind in kinds if isinstance(kind, pa.FixedSizeListType)), 1)
    lists, optional = pa.list_(pa.int64(), size), pa.list_(pa.float32(), size)
    known = {"row": pa.int64(), "negatives": lists, "probabilities": optional, "mixup": optional}
    there = {name: known[name] for name in known if name in schema.names[2:]}
    if not schema.equals(pa.schema({"row": pa.int64(), "negatives": lists, **there})):
        got = ", ".join(f"{field.name} {field.type}" for field in schema) or "neither"
        raise InputError(
            f"{path}: got {got}, expected the columns row int64 and negatives "
            "fixed_size_list<int64>, and probabilities and mixup fixed_size_list<float> if any; "
            "plan again"
        )
    require_plausible(_ENTRY_BYTES * file.num_rows * size, file, path)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in schema.names}
    for columns in file.columns(schema.names):
        for column, found in zip(columns, parts.values(), strict=True):
            values = column if column.type == pa.int64() else column.flatten()
            if column.null_count or values.null_count:
                raise InputError(
                    f"{path}: got nulls in {', '.join(parts)}, expected none; plan again"
                )
            found.append(values.to_numpy())
    joined = {name: np.concatenate(found) for name, found in parts.items() if found}
    if not joined:
        raise InputError(f"{path}: got 0 rows, expected at least 1; plan again")
    anchors = joined.pop("row")
    return {"anchors": anchors, **{name: one.reshape(-1, size) for name, one in joined.items()}}
