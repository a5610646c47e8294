"""Keeps plans and their costs in a folder, so that a later comparison can use them again.

Each setting has two files: its plan, and a record of everything on which the plan depends. The
record has the digest of the plan and is written first. So after an interruption the plan has
another digest, and is made again.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from batchplan.comparison.children import Cost
from batchplan.comparison.settings import Setting, result_paths
from batchplan.data import Embeddings, load_labels
from batchplan.errors import InputError
from batchplan.files.atomic import make_folder, write_files
from batchplan.files.documents import parse_json
from batchplan.files.inputs import check_not_input, files_behind
from batchplan.files.reading import open_regular, read_regular, readable
from batchplan.files.remote import files_at, local_path
from batchplan.files.sidecar import sidecar_path
from batchplan.options import named, paths_of, shown
from batchplan.plans import Plan
from batchplan.plans.metadata import library_versions
from batchplan.plans.output import check_parent, check_place

_KIND = "result of batchplan compare"
_MOST_BYTES = 16 << 20  # a record has a few kilobytes
_MOST = 1e18  # seconds or bytes; an integer may be more than a float can hold


@dataclass(frozen=True, eq=False)
class Result:
    """A plan, its cost, and whether an earlier comparison made it."""

    plan: Plan
    cost: Cost
    kept: bool


def origin(setting: Setting, data: Embeddings, seed: int) -> dict[str, Any]:
    """Return everything on which a plan depends, as JSON values.

    Raises:
        InputError: a file or column that the options name is missing.
    """
    options: Any = setting.options
    table = getattr(options, "label_table", None)
    try:
        codes = {
            name: load_labels(column, data, table)
            for name, (column,) in named(options, "column").items()
        }
        files = {name: _states(paths) for name, paths in named(options, "path").items()}
    except InputError as error:
        raise InputError(f"{setting.name}: {error}") from error
    return {
        "planner": setting.planner,
        "options": shown(options),
        "columns": {name: hashlib.sha256(rows.data).hexdigest() for name, rows in codes.items()},
        "files": files,
        "seed": seed,
        "fingerprint": data.fingerprint,
        "versions": dict(library_versions()),
    }


def check_results(folder: Path, settings: Sequence[Setting], inputs: Sequence[str]) -> None:
    """Refuse a folder to which the results of these settings cannot or must not be written.

    Args:
        folder: it may not exist yet.
        settings: the plans and records to write.
        inputs: files, folders and globs that are read, in addition to those that the settings name.

    Raises:
        InputError: it cannot be a folder, it is an input or in one, or a result would overwrite an
            input.
    """
    inputs = [*inputs, *paths_of(*(setting.options for setting in settings))]
    exists = os.path.isdir(folder)
    if not exists:
        if os.path.exists(folder):
            raise InputError(f"{folder}: is a file, expected a folder of results")
        check_place(folder)
    check_not_input(folder, inputs)
    for path in (path for setting in settings for path in result_paths(folder, setting)):
        if exists:
            check_place(path)
        else:
            check_parent(folder.with_name(path.name))
        check_not_input(path, inputs)


def find_result(folder: Path, setting: Setting, made_with: dict[str, Any]) -> Result | None:
    """Return the plan of a setting in a folder, if its origin is exactly ``made_with``, else None.

    Raises:
        InputError: another file has the name of the plan or of the record.
    """
    plan, record = result_paths(folder, setting)
    document = _read(record) if record.exists() else None
    if document is None:
        if plan.exists():
            raise _foreign(plan)
        return None
    if document.get("made_with") != made_with or not plan.is_file():
        return None
    try:
        if document["digest"] != _digest(plan):
            return None
        kept = Plan.load(plan)
        kept.require_match(kept.metadata.num_rows, made_with["fingerprint"])
        return Result(kept, _cost(document["cost"]), kept=True)
    except (KeyError, TypeError, AttributeError, InputError):
        return None


def keep_result(
    folder: Path, setting: Setting, made_with: dict[str, Any], plan: Path, cost: Cost
) -> None:
    """Copy a plan into a folder, which may not exist yet, and write its record.

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

    kept, record = result_paths(folder, setting)
    make_folder(folder)
    write_files({record: text, kept: plan.read_bytes()})


def _read(record: Path) -> dict[str, Any]:
    content = read_regular(record, _MOST_BYTES, f"the record of a {_KIND}")
    try:
        document = parse_json(content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise _foreign(record)
    return document


def _foreign(path: Path) -> InputError:
    return InputError(
        f"{path}: is not a {_KIND}, but has the name of one; move it, or choose another folder"
    )


def _cost(values: dict[str, Any]) -> Cost:
    """The cost from its fields; raises TypeError or AttributeError if they are invalid."""
    cost = Cost(**values)
    numbers = (cost.seconds, cost.peak_memory_bytes, cost.peak_device_memory_bytes)
    for number in (*numbers, *cost.stages.values()):
        if not isinstance(number, int | float) or not 0 <= number < _MOST:
            raise TypeError
    return cost


def _states(names: Sequence[str]) -> list[str]:
    """Text that changes when the files change: digests, or sizes and times of remote files."""
    files: list[Path] = []
    remote: list[str] = []
    for name in names:
        if (path := local_path(name)) is not None:
            files += sorted(files_behind(path))
        else:
            remote += sorted(f"{file} {file.size} {file.written}" for file in files_at(name))
    sidecars = map(sidecar_path, files)
    return [_digest(file) for file in (*files, *filter(os.path.exists, sidecars))] + remote


def _digest(path: Path) -> str:
    with readable(path), open_regular(path, "a file to read") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
