"""Plans that are kept with what they took, so that a later comparison need not make them again.

A setting has two files: its plan, and a record of what the plan was made with. The record is put in
place first and knows the digest of the plan: a plan beside it that is another is made again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from batchplan.comparison.children import Cost
from batchplan.comparison.settings import Setting, where_kept
from batchplan.data import Embeddings, load_labels
from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.files.documents import parse_json
from batchplan.files.inputs import check_kept, files_behind
from batchplan.files.reading import open_regular, read_regular, readable
from batchplan.files.sidecar import sidecar_path
from batchplan.options import named, paths_of
from batchplan.plans import Plan
from batchplan.plans.metadata import library_versions
from batchplan.plans.output import check_name, check_place

_KIND = "result of batchplan compare"
_MOST_BYTES = 16 << 20  # a record has some kilobytes
_MOST = 1e18  # seconds or bytes; an integer may be more than a float can hold


@dataclass(frozen=True, eq=False)
class Made:
    """A plan, what it took, and whether an earlier comparison made it."""

    plan: Plan
    cost: Cost
    kept: bool


def origin(setting: Setting, data: Embeddings, seed: int) -> dict[str, Any]:
    """All that a plan depends on, as plain JSON values.

    Raises:
        InputError: a file or a column that the options name is not there.
    """
    options = asdict(setting.options)
    table = options.get("label_table")
    try:
        codes = {
            name: load_labels(column, data, table)
            for name, (column,) in named(setting.options, "column").items()
        }
        files = {name: _digests(paths) for name, paths in named(setting.options, "path").items()}
    except InputError as error:
        raise InputError(f"{setting.name}: {error}") from error
    return {
        "planner": setting.planner,
        "options": options,
        "columns": {name: hashlib.sha256(found.data).hexdigest() for name, found in codes.items()},
        "files": files,
        "seed": seed,
        "fingerprint": data.fingerprint,
        "versions": dict(library_versions()),
    }


def check_results(folder: Path, settings: Sequence[Setting], inputs: Sequence[str]) -> None:
    """Refuse a folder that the results of these settings cannot or must not be kept in.

    Args:
        folder: need not exist yet.
        settings: their plans and records would be written.
        inputs: files, folders and globs that are read, besides those that the settings name.

    Raises:
        InputError: it cannot be a folder, or is one of the inputs or within it; or a result would
            overwrite an input.
    """
    inputs = [*inputs, *paths_of(*(setting.options for setting in settings))]
    there = os.path.isdir(folder)
    if not there:
        if os.path.exists(folder):
            raise InputError(f"{folder}: is a file, expected a folder of results")
        check_place(folder)
    check_kept(folder, inputs)
    for path in (path for setting in settings for path in where_kept(folder, setting)):
        if there:
            check_place(path)
        else:
            check_name(path, folder.parent)
        check_kept(path, inputs)


class Results:
    """A folder of results, as `check_results` allows it; it need not exist yet."""

    def __init__(self, folder: Path):
        self._folder = folder

    def find(self, setting: Setting, made_with: dict[str, Any]) -> Made | None:
        """The kept plan if it was made with just this, None if it is to be made (again).

        Raises:
            InputError: a file that is no result stands where this one would.
        """
        plan, record = where_kept(self._folder, setting)
        found = _read(record) if record.exists() else None
        if found is None:
            if plan.exists():
                raise _foreign(plan)
            return None
        if found.get("made_with") != made_with or not plan.is_file():
            return None
        try:
            if found["digest"] != _digest(plan):
                return None
            made = Plan.load(plan)
            made.require_match(made.metadata.num_rows, made_with["fingerprint"])
            return Made(made, _cost(found["cost"]), kept=True)
        except (KeyError, TypeError, AttributeError, InputError):
            return None

    def keep(self, setting: Setting, made_with: dict[str, Any], plan: Path, cost: Cost) -> None:
        """Copy a plan into the folder, with its record.

        Raises:
            OutputError: they could not be written.
        """
        document = {
            "kind": _KIND,
            "made_with": made_with,
            "digest": _digest(plan),
            "cost": asdict(cost),
        }
        text = json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"

        def copy(stream: BinaryIO) -> None:
            with open(plan, "rb") as source:
                shutil.copyfileobj(source, stream)

        kept, record = where_kept(self._folder, setting)
        write_files({record: text, kept: copy}, folder=self._folder)


def _read(record: Path) -> dict[str, Any]:
    content = read_regular(record, _MOST_BYTES, f"the record of a {_KIND}")
    try:
        found = parse_json(content)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("kind") != _KIND:
        raise _foreign(record)
    return found


def _foreign(path: Path) -> InputError:
    return InputError(
        f"{path}: is no {_KIND}, but stands where one is kept; move it, or choose another folder"
    )


def _cost(found: dict[str, Any]) -> Cost:
    """What `asdict` made of a cost; a TypeError or an AttributeError if it is none."""
    cost = Cost(**found)
    numbers = (cost.seconds, cost.peak_memory_bytes, cost.peak_device_memory_bytes)
    for one in (*numbers, *cost.stages.values()):
        if not isinstance(one, int | float) or not 0 <= one < _MOST:
            raise TypeError
    return cost


def _digests(names: Sequence[str]) -> list[str]:
    files = [file for name in names for file in sorted(files_behind(name))]
    sidecars = map(sidecar_path, files)
    return [_digest(file) for file in (*files, *filter(os.path.exists, sidecars))]


def _digest(path: Path) -> str:
    with readable(path), open_regular(path, "a file to read") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
