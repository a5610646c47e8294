"""The metadata of a plan: where it comes from, for which data, and how it was cut."""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from batchplan.errors import InputError
from batchplan.extras import DISTRIBUTION
from batchplan.options import ShardOrder, option
from batchplan.plans.batching import Batching
from batchplan.plans.facts import settle
from batchplan.typing import Int64Array

if TYPE_CHECKING:
    from batchplan.data.candidates import Data

FORMAT_VERSION = 1

_LIBRARIES = ("batchplan", "numba", "numpy", "pyarrow", "scipy", "torch")


@dataclass(frozen=True, kw_only=True)
class PlanMetadata(Batching):
    """The facts stored with a plan: where it comes from, its batching, and those below. All are
    JSON values, none is a time.

    Attributes:
        format_version: version of the stored metadata; newer ones are refused.
        planner: name of the planner, empty if unknown.
        options: every option of the planner.
        seed: seed of the run, None if unknown.
        num_rows: rows of the data that the plan was made for, N; at least ``batch_size``.
        partitions_rows: whether each of the N rows occurs exactly once.
        fingerprint: fingerprint of the data, None if unknown.
        versions: versions of Python and of the libraries that made the plan.
        metrics: what was measured while planning; None for a number that is not finite.
        shard_order: the order of the files that the data were read from, if they were in a folder
            or glob where it makes a difference; stored only then.
        ids_digest: of the ids of all rows, see `batchplan.data.ids.ids_digest` and, for joined
            plans, `check_digest`; stored only if there are ids.

    Raises:
        InputError: a value of another type or out of its range.
    """

    format_version: int = option(
        FORMAT_VERSION, "Version of the metadata.", ge=FORMAT_VERSION, le=FORMAT_VERSION
    )
    planner: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = option(None, "Seed of the run.", ge=0)
    num_rows: int = option(MISSING, "Rows of the data.", ge=2, lt=1 << 63)
    partitions_rows: bool
    fingerprint: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    shard_order: ShardOrder | None = None
    ids_digest: str | None = None

    def __post_init__(self) -> None:
        settle(self)
        if self.batch_size > self.num_rows:
            raise InputError(
                f"batch size: got {self.batch_size}, expected at most the number of rows, "
                f"{self.num_rows}"
            )

    @classmethod
    def stamped(
        cls, batching: Batching, num_rows: int, partitions_rows: bool, **facts: Any
    ) -> "PlanMetadata":
        """Return the metadata of a new plan, with the versions of the installed libraries.

        ``facts`` are ``planner``, ``options``, ``seed``, ``fingerprint``, ``metrics``,
        ``shard_order`` and ``ids_digest``.
        """
        return cls(
            num_rows=num_rows,
            partitions_rows=partitions_rows,
            versions=dict(library_versions()),
            **{f.name: getattr(batching, f.name) for f in fields(Batching)},
            **facts,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, in a fixed order."""
        known = [name for name in _OPTIONAL if getattr(self, name) is not None]
        return {name: getattr(self, name) for name in (*_KEYS, *known)}

    def require_match(self, num_rows: int, fingerprint: str | None, what: str) -> None:
        """Require that the plan or table was made for this data; ``what`` names it in messages.

        Raises:
            InputError: another number of rows, or another fingerprint if both are known.
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

    def require_ids(
        self, data: "Data", table: str | None = None, reference: "Data | None" = None
    ) -> None:
        """Require the ids that were planned, unless the fingerprint tells that the rows are the
        same; of a table of the rows and of a reference, if the data have no ids.

        Raises:
            InputError: as `check_digest` and `check_planned`.
        """
        if self.ids_digest is None:
            return
        from batchplan.data.ids import Ids, check_digest  # data without ids need no Arrow
        from batchplan.data.table_files import check_planned
        from batchplan.files.remote import located

        if data.ids is not None:
            if self.fingerprint != data.fingerprint:
                check_digest(self.ids_digest, Ids(data.ids, "the data"))
            return
        wanted = None if data.origin is None else data.origin.wanted.id
        if reference is not None and reference.ids is not None and wanted != "":
            check_digest(self.ids_digest, Ids(reference.ids, "the reference"))
        if table is not None:
            check_planned(located(table), self.ids_digest, wanted)

    def require_order(self, order: ShardOrder | None) -> None:
        """Require that files are in the order of those that were planned; None if it makes no
        difference. Raises InputError."""
        if order and self.shard_order and order != self.shard_order:
            raise InputError(
                f"plan: made for files in {self.shard_order} order, got {order} order; pass "
                f"--shard-order {self.shard_order} (shard_order=), or name the files one by one in "
                "the order of the rows that were planned"
            )

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any], *, where: str = "plan metadata"
    ) -> "PlanMetadata":
        """Return the metadata from `to_dict`; unknown keys are ignored.

        Raises:
            InputError: a newer format version, or a missing or wrong value; ``where`` names the
                file.
        """
        format_version = document.get("format_version")
        if isinstance(format_version, int) and format_version > FORMAT_VERSION:
            raise InputError(
                f"{where}: format version {format_version} is newer than {FORMAT_VERSION}, the "
                "newest this batchplan reads; upgrade batchplan"
            )
        if missing := [name for name in _KEYS if name not in document]:
            raise InputError(
                f"{where}: metadata without {', '.join(missing)}; restore the file, or delete the "
                "metadata to load the rows alone"
            )
        try:
            known: dict[str, Any] = {name: document.get(name) for name in (*_KEYS, *_OPTIONAL)}
            return cls(**known)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


# Their order in files.
_KEYS = (
    "format_version", "planner", "options", "seed", "batch_size", "num_rows", "tail", "batch_order",
    "scope", "world_size", "partitions_rows", "fingerprint", "versions", "metrics",
)  # fmt: skip
_OPTIONAL = "shard_order", "ids_digest"


@cache
def library_versions() -> Mapping[str, str]:
    """Return versions of Python and of the libraries that a plan may depend on, without imports."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = version(DISTRIBUTION if name == "batchplan" else name)
        except PackageNotFoundError:  # not installed, or run from a source tree
            continue
    return versions


def rows_digest(rows: Int64Array) -> str:
    """Return SHA-256 of the rows, by which a plan names the plan that it was made from."""
    return f"sha256:{hashlib.sha256(rows.astype('<i8').tobytes()).hexdigest()}"
