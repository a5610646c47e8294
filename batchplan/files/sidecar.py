"""The metadata of a plan in a JSON file beside it, for formats that cannot hold metadata."""

import json
import os
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.reading import read_regular

# Keys that tell the metadata of a plan from other JSON.
_KEYS = {"format_version", "planner", "batch_size", "num_rows", "digest"}
# Batch offsets grow with the plan: about 20 bytes per batch, which takes at least 4 in the plan.
_MOST_BYTES, _MOST_TIMES = 16 << 20, 16


def sidecar_path(path: Path) -> Path:
    """The metadata file of a plan: ``plan.npy.json`` beside ``plan.npy``.

    For a symbolic link, it is beside the link, or beside the target if it exists only there.
    """
    beside, beside_target = sidecar_places(path)
    at_target = os.path.exists(beside_target) and not os.path.exists(beside)
    return beside_target if at_target else beside


def sidecar_places(path: Path) -> tuple[Path, Path]:
    """Where the metadata may be: beside a file, then beside its link target."""
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path
    return path.with_name(f"{path.name}.json"), target.with_name(f"{target.name}.json")


def read_sidecar(sidecar: Path, path: Path) -> bytes | None:
    """The metadata of a plan, or None.

    Args:
        sidecar: the file of the metadata.
        path: the plan.

    Raises:
        InputError: they cannot be read, are not a regular file, or are too large for this plan.
    """
    if not os.path.exists(sidecar):
        return None
    most = _MOST_BYTES + _MOST_TIMES * path.stat().st_size
    return read_regular(sidecar, most, "the metadata of a plan")


def has_plan_metadata(path: Path) -> bool:
    """Whether a JSON file beside this file says that it is a plan."""
    try:
        document = json.loads(read_sidecar(sidecar_path(path), path) or b"null")
    except (InputError, OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.keys() >= _KEYS
