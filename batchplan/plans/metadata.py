"""What a plan says about itself: how it was made, for which data, and how it was cut."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError

FORMAT_VERSION = 1
SCOPES = ("device", "global")
TAILS = ("keep", "drop", "pad")
BATCH_ORDERS = ("planned", "shuffled")

_LIBRARIES = ("batchplan", "numba", "numpy", "pyarrow", "scipy", "torch")


@dataclass(frozen=True, kw_only=True)
class PlanMetadata:
    """The facts stored with a plan. All of them are plain JSON values, and none is a time.

    Attributes:
        format_version: version of the stored metadata; a newer one than ours is refused.
        planner: name of the planner, empty when it is not known.
        options: every option of the planner.
        seed: seed of the run, None when it is not known.
        batch_size: rows of a full batch, those contrasted together; 2 to ``num_rows``.
        num_rows: rows of the data the plan was made for, N.
        tail: what became of the rows that did not fill a step, one of `TAILS`.
        batch_order: whether whole batches were shuffled, one of `BATCH_ORDERS`.
        scope: what a batch is for, one of `SCOPES`: for one device, batch t W + r for device r in
            step t; or for all of them (``global``), which share it in contiguous, equal parts.
        world_size: number of devices the plan is for, W.
        partitions_rows: whether each of the N rows occurs exactly once.
        fingerprint: fingerprint of the data, None when it is not known.
        versions: versions of Python and of the libraries that made the plan.
        metrics: what was measured while planning. A number that is not finite is stored as None.

    Raises:
        InputError: a value of another type or out of its range.
    """

    format_version: int = FORMAT_VERSION
    planner: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    batch_size: int
    num_rows: int
    tail: str = "keep"
    batch_order: str = "planned"
    scope: str = "device"
    world_size: int = 1
    partitions_rows: bool
    fingerprint: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _RULES:
            object.__setattr__(self, name, _plain(getattr(self, name), name))
        _check({name: getattr(self, name) for name in _RULES}, "plan metadata")

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values, in a fixed order."""
        return asdict(self)

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
        if missing := [name for name in _RULES if name not in document]:
            raise InputError(
                f"{where}: metadata without {', '.join(missing)}; restore the file, or delete the "
                "metadata to load the rows alone"
            )
        known = {name: document[name] for name in _RULES}
        _check(known, where)
        return cls(**known)


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


def _is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(part, str) for part in value.values())


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "format_version": (lambda v: v == FORMAT_VERSION and _is_int(v, 1), str(FORMAT_VERSION)),
    "planner": (lambda v: isinstance(v, str), "a string"),
    "options": (lambda v: isinstance(v, dict), "an object"),
    "seed": (lambda v: v is None or _is_int(v, 0), "an integer of 0 or more, or null"),
    "batch_size": (lambda v: _is_int(v, 2), "an integer of 2 or more"),
    "num_rows": (lambda v: _is_int(v, 2) and v < 1 << 63, "an int64 of 2 or more"),
    "tail": (lambda v: v in TAILS, f"one of {', '.join(TAILS)}"),
    "batch_order": (lambda v: v in BATCH_ORDERS, f"one of {', '.join(BATCH_ORDERS)}"),
    "scope": (lambda v: v in SCOPES, f"one of {', '.join(SCOPES)}"),
    "world_size": (lambda v: _is_int(v, 1), "an integer of 1 or more"),
    "partitions_rows": (lambda v: isinstance(v, bool), "true or false"),
    "fingerprint": (lambda v: v is None or isinstance(v, str), "a string or null"),
    "versions": (_is_text_map, "an object of strings"),
    "metrics": (lambda v: isinstance(v, dict), "an object"),
}


def _check(values: Mapping[str, Any], where: str) -> None:
    for name, (holds, expected) in _RULES.items():
        if not holds(values[name]):
            raise InputError(f"{where}: {name}: got {values[name]!r:.80}, expected {expected}")
    if values["batch_size"] > values["num_rows"]:
        raise InputError(
            f"{where}: batch_size: got {values['batch_size']}, expected at most the number of "
            f"rows, {values['num_rows']}"
        )


def _plain(value: Any, name: str) -> Any:
    """The value as JSON holds it, so that a plan equals what is loaded back from its file."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, PurePath):
        return _text(str(value))
    if isinstance(value, Mapping):
        return {
            _text(str(key)): _plain(value[key], f"{name}.{key}") for key in sorted(value, key=str)
        }
    if isinstance(value, list | tuple):
        return [_plain(part, name) for part in value]
    raise InputError(f"{name}: got a {type(value).__name__}, expected a value that JSON can hold")


def _text(value: str) -> str:
    """The text with half surrogate pairs spelled out: names of files hold them, files cannot."""
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()
