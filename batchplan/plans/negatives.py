"""A table of negatives: the negatives of each anchor, loaded and saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.files.inputs import PathLike
from batchplan.files.remote import no_url
from batchplan.plans.formats import negatives
from batchplan.plans.formats.negatives import Arrays
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.output import check_output
from batchplan.plans.validation import check_range
from batchplan.typing import Int64Array


@dataclass(frozen=True, eq=False)
class Negatives:
    """The negatives of each anchor: n anchors with M negatives each.

    Attributes:
        anchors: int64 (n,), distinct row numbers, read-only.
        negatives: int64 (n, M), M distinct rows per anchor, never the anchor itself, read-only.
        metadata: how the table was made and for which data. ``batch_size`` is the option, and
            ``partitions_rows`` is False.

    Raises:
        InputError: shapes that do not fit, a row out of range, a repeated anchor, a negative that
            is its own anchor or repeated.
    """

    anchors: Int64Array
    negatives: Int64Array
    metadata: PlanMetadata

    def __post_init__(self) -> None:
        for name in negatives.NAMES:
            view = np.ascontiguousarray(getattr(self, name), np.int64).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        _check(self, "negatives")

    @property
    def per_anchor(self) -> int:
        """M."""
        return int(self.negatives.shape[1])

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def digest(self) -> str:
        """SHA-256 of the rows."""
        return negatives.digest(self._arrays())

    def _arrays(self) -> Arrays:
        return {name: getattr(self, name) for name in negatives.NAMES}

    def save(
        self,
        path: PathLike,
        *,
        force: bool = False,
        ids: Any = None,
        inputs: Sequence[PathLike] = (),
    ) -> None:
        """Write the table as Parquet; the same table gives the same bytes.

        Columns: ``row`` int64, ``negatives`` list<int64>, and ``id`` of the anchor if there are
        ids.

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
        arrays = self._arrays()
        document = {**self.metadata.to_dict(), "digest": self.digest}
        write_files({Path(path): lambda stream: negatives.write(stream, arrays, document, ids)})

    @classmethod
    def load(cls, path: PathLike) -> Negatives:
        """Read and check a table that `save` wrote.

        Raises:
            InputError: the file is missing or broken, is not such a table, or was edited.
        """
        arrays, document = negatives.read(no_url(path))
        metadata = PlanMetadata.from_dict(document, where=str(path))
        try:
            table = cls(**arrays, metadata=metadata)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        if document.get("digest") != negatives.digest(arrays):
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


def check_table_output(
    path: PathLike, *, force: bool = False, inputs: Sequence[PathLike] = ()
) -> None:
    """Refuse an output path at which a table of negatives cannot be saved.

    Raises:
        InputError: a suffix other than ``.parquet``, or as `check_output`.
    """
    if no_url(path).suffix.lower() != negatives.SUFFIX:
        raise InputError(
            f"{path}: a table of negatives needs the suffix {negatives.SUFFIX}; rename it, or make "
            "a plan of batches with --as-batches"
        )
    check_output(path, force=force, inputs=inputs)


def _check(table: Negatives, where: str) -> None:
    anchors, rows = table.anchors, table.negatives
    shape = rows.shape
    if len(shape) != 2 or 0 in shape or shape[0] != len(anchors):
        raise InputError(f"{where}: got shape {shape} for {len(anchors)} anchors, expected (n, M)")
    check_range(anchors, table.metadata.num_rows, f"{where}, anchors")
    check_range(rows.ravel(), table.metadata.num_rows, f"{where}, negatives")
    if len(np.unique(anchors)) != len(anchors):
        raise InputError(f"{where}: an anchor occurs twice, expected each once")
    own = (rows == anchors[:, None]).any(axis=1)
    ordered = np.sort(rows, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    for wrong, problem in ((own, "is its own negative"), (twice, "has a negative twice")):
        if wrong.any():
            raise InputError(f"{where}: row {anchors[wrong.argmax()]} {problem}; plan again")
