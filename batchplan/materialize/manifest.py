"""`Manifest`: the description of a data set in plan order, in ``_batchplan.json``."""

from __future__ import annotations

import json
import os
from dataclasses import KW_ONLY, MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.reading import read_regular
from batchplan.materialize.options import FormatName, Layout
from batchplan.options import Scope, option
from batchplan.plans.facts import settle

NAME = "_batchplan.json"  # readers of folders skip names that begin with _
VERSION = 1
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Manifest:
    """How a data set was written, and for which plan.

    Attributes:
        plan: digest of the plan, as `Plan.digest`.
        fingerprint: of the plan's embeddings, None if unknown.
        layout: see `batchplan.materialize.layouts.lay_out`.
        format: of the files.
        batch_size: rows of a full batch of the plan.
        world_size: number of devices.
        scope: which rows of a step meet in the loss.
        workers: streams of each folder; shard s belongs to worker s mod ``workers``.
        num_rows: rows of the planned data.
        rows: rows written.
        columns: those of the data; a column ``batchplan_row`` follows.
        shards: each file: its ``path`` below the folder and its ``rows``, in reading order.
        version: of this document.

    Raises:
        InputError: a value of the wrong type or out of range.
    """

    plan: str
    _: KW_ONLY
    fingerprint: str | None = None
    layout: Layout
    format: FormatName
    batch_size: int = option(MISSING, "Rows of a full batch.", ge=2)
    world_size: int = option(MISSING, "Number of devices.", ge=1)
    scope: Scope
    workers: int = option(MISSING, "Streams of a folder.", ge=1)
    num_rows: int = option(MISSING, "Rows of the data.", ge=2)
    rows: int = option(MISSING, "Rows written.", ge=1)
    columns: list[str] = field(default_factory=list)
    shards: list[dict[str, Any]] = field(default_factory=list)
    version: int = option(VERSION, "Version of this document.", ge=VERSION, le=VERSION)

    def __post_init__(self) -> None:
        settle(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, in a fixed order."""
        return asdict(self)

    def to_bytes(self) -> bytes:
        """Return the content of the file. Equal manifests have equal bytes."""
        return json.dumps(self.to_dict(), indent=2).encode() + b"\n"

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Manifest:
        """Read the manifest of a data set.

        Raises:
            InputError: the folder has none, or it is damaged or of a newer version.
        """
        path = Path(folder) / NAME
        try:
            document = parse_json(read_regular(path, _MOST_BYTES, "a manifest"))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: is not JSON ({error}); materialize again") from None
        names = [entry.name for entry in fields(cls)]
        if not isinstance(document, dict) or any(name not in document for name in names):
            raise InputError(f"{path}: is not a batchplan manifest; materialize again")
        try:
            return cls(**{name: document[name] for name in names})
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
