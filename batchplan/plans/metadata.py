"""What a plan says about itself: where it comes from, for which data, and how it was cut."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.options import option
from batchplan.plans.batching import Batching
from batchplan.plans.facts import settle

FORMAT_VERSION = 1

_LIBRARIES = ("batchplan", "numba", "numpy", "pyarrow", "scipy", "torch")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a plan comes from. All facts are plain JSON values, and none is a time.

    Attributes:
        planner: name of the planner, empty when it is not known.
        options: every option of the planner.
        seed: seed of the run, None when it is not known.
        fingerprint: fingerprint of the data, None when it is not known.
        metrics: what was measured while planning. A number that is not finite is stored as None.

    Raises:
        InputError: a value of another type or out of its range.
    """

    planner: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = option(None, "Seed of the run.", ge=0)
    fingerprint: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, kw_only=True)
class PlanMetadata(Provenance, Batching):
    """The facts stored with a plan: its provenance, its batching, and those below.

    Attributes:
        format_version: version of the stored metadata; a newer one than ours is refused.
        num_rows: rows of the data the plan was made for, N; at least ``batch_size``.
        partitions_rows: whether each of the N rows occurs exactly once.
        versions: versions of Python and of the libraries that made the plan.

    Raises:
        InputError: a value of another type or out of its range.
    """

    format_version: int = option(
        FORMAT_VERSION, "Version of the metadata.", ge=FORMAT_VERSION, le=FORMAT_VERSION
    )
    num_rows: int = option(MISSING, "Rows of the data.", ge=2, lt=1 << 63)
    partitions_rows: bool
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self)
        if self.batch_size > self.num_rows:
            raise InputError(
                f"batch size: got {self.batch_size}, expected at most the number of rows, "
                f"{self.num_rows}"
            )

    @classmethod
    def stamped(
        cls, batching: Batching, provenance: Provenance, num_rows: int, partitions_rows: bool
    ) -> PlanMetadata:
        """The metadata of what is made now, by the libraries that are installed."""
        parts = ((Batching, batching), (Provenance, provenance))
        return cls(
            num_rows=num_rows,
            partitions_rows=partitions_rows,
            versions=dict(library_versions()),
            **{one.name: getattr(part, one.name) for kind, part in parts for one in fields(kind)},
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values, in a fixed order."""
        return {name: getattr(self, name) for name in _KEYS}

    def require_match(self, num_rows: int, fingerprint: str | None, what: str) -> None:
        """Require that ``what`` these metadata describe was made for this data.

        Raises:
            InputError: another number of rows, or, where both are known, another fingerprint.
        """
        if num_rows != self.num_rows:
            raise InputError(
                f"{what}: made for {self.num_rows} rows, got data of {num_rows}; give the data it "
                "was made for, or plan again"
            )
        if fingerprint and self.fingerprint and fingerprint != self.fingerprint:
            raise InputError(
                f"{what}: made for data with fingerprint {self.fingerprint}, got {fingerprint}; "
                "give the data it was made for, or plan again"
            )

    @classmethod
    def from_dict(cls, document: object, *, where: str = "plan metadata") -> PlanMetadata:
        """Metadata from what `to_dict` gave; keys it does not know are ignored.

        Raises:
            InputError: not an object, a newer format version, or a missing or a wrong value;
                ``where`` says in which file.
        """
        if not isinstance(document, dict):
            raise InputError(
                f"{where}: got a JSON {type(document).__name__}, expected an object of metadata"
            )
        found = document.get("format_version")
        if isinstance(found, int) and found > FORMAT_VERSION:
            raise InputError(
                f"{where}: format version {found} is newer than {FORMAT_VERSION}, the newest this "
                "batchplan reads; upgrade batchplan"
            )
        if missing := [name for name in _KEYS if name not in document]:
            raise InputError(
                f"{where}: metadata without {', '.join(missing)}; restore the file, or delete the "
                "metadata to load the rows alone"
            )
        try:
            return cls(**{name: document[name] for name in _KEYS})
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


# As they stand in files: what made the plan, how it was cut, and what came of it.
_KEYS = (
    "format_version", "planner", "options", "seed", "batch_size", "num_rows", "tail", "batch_order",
    "scope", "world_size", "partitions_rows", "fingerprint", "versions", "metrics",
)  # fmt: skip


@cache
def library_versions() -> Mapping[str, str]:
    """Versions of Python and of the libraries a plan may depend on, without importing them."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # optional, or run from a source tree
            continue
    return versions


def rows_digest(rows: NDArray[np.int64]) -> str:
    """What a plan remembers of another that it was made from: a path would mean another file in
    another folder."""
    return f"sha256:{hashlib.sha256(rows.astype('<i8').tobytes()).hexdigest()}"
