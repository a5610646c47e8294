"""A plan: row numbers in training order, cut into batches.

A format with a sidecar has two files, which cannot be replaced at once: a save renames the new
sidecar, then the new rows. The digest in a sidecar says which rows it belongs to. If a load finds
another digest, a save may be between its two renames, so the load reads both files again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchplan.errors import InputError
from batchplan.extras import missing_told
from batchplan.files.atomic import Writer, write_files
from batchplan.files.inputs import PathLike
from batchplan.files.remote import no_url
from batchplan.files.sidecar import sidecar_path
from batchplan.notebooks import frame
from batchplan.plans.batching import Batching
from batchplan.plans.formats import format_of
from batchplan.plans.formats.contents import document_bytes
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.output import STDOUT, check_output
from batchplan.plans.shown import html_of, summary
from batchplan.plans.steps import check_steps, cut_order
from batchplan.plans.storage import derived_metadata, read_files, stored_offsets, write_stdout
from batchplan.plans.validation import (
    check_batches_distinct,
    check_offsets,
    check_partition,
    check_range,
    is_partition,
    regular_offsets,
    widen,
)
from batchplan.typing import Int64Array

BEGUN = "begun"  # among the options of a plan: the digest of the one that its epoch began with

_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.0)  # seconds; a save renames its two files at once


@dataclass(frozen=True, eq=False)
class Plan:
    """Which rows share a batch, and the order of the batches. Plans are equal if their batches and
    their metadata are.

    `cut` makes a plan from an order of the rows, and `load` reads one. Both check it; the
    constructor does not.

    Attributes:
        rows: int64 (num_entries,), row numbers in training order, read-only.
        batch_offsets: int64 (num_batches + 1,), read-only; batch b is
            ``rows[batch_offsets[b]:batch_offsets[b + 1]]``.
        metadata: how the plan was made, and for which data.
    """

    rows: Int64Array
    batch_offsets: Int64Array
    metadata: PlanMetadata

    def __post_init__(self) -> None:
        for name in ("rows", "batch_offsets"):
            view = np.ascontiguousarray(getattr(self, name), dtype=np.int64).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self.rows, self.batch_offsets, self.metadata
        return Plan, parts  # stays read-only when pickled

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return (
            self.metadata == other.metadata
            and np.array_equal(self.batch_offsets, other.batch_offsets)
            and np.array_equal(self.rows, other.rows)
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def cut(
        cls,
        order: ArrayLike,
        batching: Batching,
        *,
        num_rows: int,
        generator: np.random.Generator | None = None,
        **facts: Any,
    ) -> Plan:
        """Cut an order of all rows into batches.

        Args:
            order: integers (num_rows,), a permutation of 0 to num_rows - 1.
            batching: how to cut it.
            num_rows: number of rows of the data, N.
            generator: shuffles the batches; needed only for the batch order ``shuffled``.
            facts: where the plan comes from, as of `PlanMetadata.stamped`; stored with it.

        Raises:
            InputError: an order that is not a permutation, a batch size or number of devices out
                of range, shuffling without a generator, or the tail ``keep`` with fewer rows left
                than devices.
        """
        rows = widen(np.asarray(order), "order")
        check_range(rows, num_rows, "order")
        check_partition(rows, num_rows, "order")
        if batching.batch_order == "planned":
            generator = None
        elif generator is None:
            raise InputError("batch order: shuffled needs a random generator, got none")
        rows, offsets = cut_order(rows, batching, generator)
        whole = is_partition(rows, num_rows)
        return cls(rows, offsets, PlanMetadata.stamped(batching, num_rows, whole, **facts))

    @classmethod
    def from_batches(
        cls,
        rows: ArrayLike,
        batch_offsets: ArrayLike,
        batching: Batching,
        *,
        num_rows: int,
        **facts: Any,
    ) -> Plan:
        """Make a plan of any batches, which need not partition the rows.

        Args:
            rows: integers (num_entries,) from 0 to num_rows - 1, without repeats in a batch.
            batch_offsets: integers (num_batches + 1,), rising from 0 to num_entries.
            batching: how the caller cut them, into whole steps of all devices.
            num_rows: number of rows of the data, N.
            facts: where the plan comes from, as of `PlanMetadata.stamped`; stored with it.

        Raises:
            InputError: a row out of range or repeated in a batch, invalid offsets, a batch that is
                too large, or a step without rows for a device.
        """
        entries = widen(np.asarray(rows), "rows")
        offsets = widen(np.asarray(batch_offsets), "batch offsets")
        check_range(entries, num_rows, "rows")
        whole = is_partition(entries, num_rows)
        metadata = PlanMetadata.stamped(batching, num_rows, whole, **facts)
        plan = cls(entries, offsets, metadata)
        plan._check("plan")
        return plan

    @property
    def num_batches(self) -> int:
        return len(self.batch_offsets) - 1

    @property
    def batch_size(self) -> int:
        """Rows of a full batch; other batches may be shorter."""
        return self.metadata.batch_size

    @cached_property
    def digest(self) -> str:
        """Identifies the plan: ``sha256:`` and 64 hex digits, of the rows and the batch offsets. It
        is stored in the plan's file."""
        digest = hashlib.sha256()
        for numbers in (self.rows, self.batch_offsets):
            digest.update(numbers.astype("<i8", copy=False).data)
        return f"sha256:{digest.hexdigest()}"

    @property
    def begun(self) -> str:
        """The digest of the plan that the epoch began with. It is another one if the plan of the
        rest was made in the middle of the epoch; see `EpochPlans`."""
        return str(self.metadata.options.get(BEGUN, self.digest))

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, batch: SupportsIndex) -> Int64Array:
        """The row numbers of a batch, counted from the end if negative, as a read-only view."""
        number = index(batch)
        if not -self.num_batches <= number < self.num_batches:
            raise IndexError(f"batch {number}: the plan has {self.num_batches} batches")
        number %= self.num_batches
        return self.rows[self.batch_offsets[number] : self.batch_offsets[number + 1]]

    def __iter__(self) -> Iterator[Int64Array]:
        return self.batches()

    def __repr__(self) -> str:
        return f"Plan({summary(self.metadata, self.num_batches)})"

    def _repr_html_(self) -> str:
        """Return a table and a picture, which notebooks show."""
        return html_of(self.rows, self.metadata, self.num_batches)

    def to_dict(self) -> dict[str, Any]:
        """Return the metadata, the digest and the row numbers of each batch, as JSON values."""
        batches = [batch.tolist() for batch in self.batches()]
        return {**self.metadata.to_dict(), "digest": self.digest, "batches": batches}

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` in training order, with the columns ``batch`` and ``row``.

        Raises:
            ResourceError: pandas is not installed.
        """
        return frame({"batch": self.batch_of_entry(), "row": self.rows})

    def batches(self) -> Iterator[Int64Array]:
        """Yield the row numbers of each batch, as read-only views."""
        for start, stop in zip(self.batch_offsets[:-1], self.batch_offsets[1:], strict=True):
            yield self.rows[start:stop]

    def batch_of_entry(self) -> NDArray[np.int32 | np.int64]:
        """Return the batch of each entry of ``rows``: (num_entries,), int32 if that suffices."""
        dtype = np.int32 if self.num_batches <= np.iinfo(np.int32).max else np.int64
        return np.repeat(np.arange(self.num_batches, dtype=dtype), np.diff(self.batch_offsets))

    def with_metrics(self, **metrics: Any) -> Plan:
        """Return the same plan, with more metrics in its metadata."""
        return self.with_metadata(metrics={**self.metadata.metrics, **metrics})

    def with_metadata(self, **changes: Any) -> Plan:
        """Return the same plan, with other metadata: fields of `PlanMetadata`."""
        metadata = replace(self.metadata, **changes)
        return Plan(self.rows, self.batch_offsets, metadata)

    @missing_told()
    def save(
        self,
        path: PathLike,
        *,
        force: bool = False,
        ids: Any = None,
        inputs: Sequence[PathLike] = (),
    ) -> None:
        """Write the plan in the format of the suffix; the same plan gives the same bytes.

        ``.npy`` (row numbers), ``.jsonl`` (a batch per line) and ``.txt`` (a row per line) keep the
        metadata in a second file, such as ``plan.npy.json``; ``.parquet`` and ``.npz`` have
        everything in one file. ``-`` writes the text of ``.txt`` to standard output. At any moment
        a file is either the old or the new one.

        Args:
            path: the file to write.
            force: whether an existing file may be replaced.
            ids: (num_rows,), NumPy or Arrow, the id of each row of the data; the column ``id`` in
                Parquet; other formats leave it out.
            inputs: files and folders that must not be written to.

        Raises:
            InputError: the path cannot be used (see `check_output`), or ids do not fit the data.
            OutputError: writing failed; the message says what became of existing files.
        """
        if os.fspath(path) == STDOUT:
            return write_stdout(self)
        check_output(path, force=force, inputs=inputs)
        path = Path(path)
        form = format_of(path)
        document = self.metadata.to_dict()
        regular = regular_offsets(len(self.rows), self.batch_size)
        if form.sidecar and not np.array_equal(self.batch_offsets, regular):
            document["batch_offsets"] = self.batch_offsets.tolist()
        document["digest"] = self.digest
        files: dict[Path, Writer | bytes] = {}
        if form.sidecar:
            files[sidecar_path(path)] = document_bytes(document, indent=2) + b"\n"
        files[path] = lambda stream: form.write(stream, self, document, ids)
        write_files(files)

    @classmethod
    @missing_told()
    def load(
        cls, path: PathLike, *, batch_size: int | None = None, num_rows: int | None = None
    ) -> Plan:
        """Read and check a plan.

        Files without metadata, made by hand or by another tool, load too: unknown facts get the
        defaults of `PlanMetadata`, and ``partitions_rows`` is computed.

        Args:
            path: a file in one of the formats of `save`.
            batch_size: needed for ``.npy`` and ``.txt`` without metadata, where all batches but
                the last are full. For other files it must be the batch size of the plan.
            num_rows: number of rows of the data; must agree with the metadata. Without either, it
                is the largest row number + 1.

        Raises:
            InputError: the file is missing or broken, is not a plan, or disagrees with its
                metadata or with the arguments.
        """
        path = no_url(path)
        form = format_of(path)
        home = str(sidecar_path(path) if form.sidecar else path)
        for pause in _PAUSES if form.sidecar else (0.0,):
            rows, offsets, document = read_files(path, form)
            if document is None:
                home = str(path)
                metadata = derived_metadata(rows, offsets, batch_size, num_rows, home)
            else:
                metadata = PlanMetadata.from_dict(document, where=home)
            if offsets is None:
                offsets = stored_offsets(document, len(rows), metadata.batch_size, home)
            plan = cls(rows, offsets, metadata)
            if document is None or document.get("digest") == plan.digest:
                break
            time.sleep(pause)
        else:
            raise InputError(
                f"{home}: the metadata belong to other rows or batches (the digest differs): a "
                "save was cut short or a file was edited; plan again, or delete the metadata to "
                "load the rows alone"
            )
        if batch_size not in (None, plan.batch_size):
            raise InputError(
                f"{home}: batch size of the plan is {plan.batch_size}, expected {batch_size}; "
                "leave it out, or choose the plan for it"
            )
        if num_rows not in (None, metadata.num_rows):
            raise InputError(
                f"{home}: number of rows of the plan is {metadata.num_rows}, expected {num_rows}; "
                "give the data it was made for, or plan again"
            )
        plan._check(str(path))
        return plan

    def _check(self, where: str) -> None:
        """Require that the rows and batches are valid and agree with the metadata.

        Raises:
            InputError: ``where`` begins the message.
        """
        rows, offsets, metadata = self.rows, self.batch_offsets, self.metadata
        check_offsets(offsets, len(rows), where)
        check_range(rows, metadata.num_rows, where)
        largest = int(np.diff(offsets).max())
        if largest > self.batch_size:
            raise InputError(
                f"{where}: got a batch of {largest} rows, expected at most {self.batch_size}"
            )
        check_steps(offsets, metadata.world_size, metadata.scope, where)
        if metadata.partitions_rows:
            check_partition(rows, metadata.num_rows, where)
        else:
            check_batches_distinct(rows, offsets, where)

    def require_match(self, num_rows: int, fingerprint: str | None) -> None:
        """Require that the plan was made for this data.

        Raises:
            InputError: another number of rows, or another fingerprint if both are known.
        """
        self.metadata.require_match(num_rows, fingerprint, "plan")


def require_plan(plan: Any, x: Any, function: str) -> None:
    """Require that a function got a plan and then its data, not the other way round.

    Raises:
        InputError: ``plan`` is no plan, or ``x`` is one.
    """
    if isinstance(x, Plan) or not isinstance(plan, Plan):
        raise InputError(
            f"{function}: got {type(x).__name__} as embeddings and {type(plan).__name__} as plan; "
            f"write {function}(plan, embeddings) or {function}(plan, x, y); Plan.load reads a plan"
        )
