"""The metadata of a plan in a JSON file next to it, for formats that cannot hold metadata."""

import os
from pathlib import Path
from zipfile import ZipFile

from batchplan.files.documents import parse_json
from batchplan.files.reading import open_regular, read_regular

NPZ_MEMBERS = ("rows", "batch_offsets", "metadata")
# Keys by which the metadata of a plan are recognised.
_KEYS = {"format_version", "planner", "batch_size", "num_rows", "digest"}
# Batch offsets grow with the plan: about 20 bytes per batch, which takes at least 4 in the plan.
_MOST_BYTES, _MOST_TIMES = 16 << 20, 16


def sidecar_path(path: Path) -> Path:
    """Return the metadata file of a plan: ``plan.npy.json`` next to ``plan.npy``.

    For a symbolic link, it is next to the link, or next to the target if it exists only there.
    """
    beside, beside_target = sidecar_places(path)
    at_target = os.path.exists(beside_target) and not os.path.exists(beside)
    return beside_target if at_target else beside


def sidecar_places(path: Path) -> tuple[Path, Path]:
    """Return where the metadata may be: next to a file, then next to its link target."""
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path
    return path.with_name(f"{path.name}.json"), target.with_name(f"{target.name}.json")


def read_sidecar(path: Path, size: int) -> bytes | None:
    """Return the metadata next to a plan of ``size`` bytes; None if there are none.

    Raises:
        InputError: they cannot be read, are not a regular file, or are too large for this plan.
    """
    place = sidecar_path(path)
    if not os.path.exists(place):
        return None
    return read_regular(place, _MOST_BYTES + _MOST_TIMES * size, "the metadata of a plan")


def is_own_plan(path: Path) -> bool:
    """Return whether a file is a plan of ours in JSON lines or NPZ, which data may be next to."""
    suffix = path.suffix.lower()
    return has_plan_metadata(path) if suffix == ".jsonl" else suffix == ".npz" and has_members(path)


def has_members(path: Path) -> bool:
    """Return whether an NPZ has the members of a plan."""
    try:
        with open_regular(path, "a plan") as stream, ZipFile(stream) as archive:
            return {f"{name}.npy" for name in NPZ_MEMBERS} <= {*archive.namelist()}
    except Exception:  # zipfile passes on whatever damaged bytes raise
        return False


def has_plan_metadata(path: Path) -> bool:
    """Return whether a JSON file next to this file says that it is a plan."""
    try:
        text = read_sidecar(path, path.stat().st_size)
        document = parse_json(text or b"null", any_text=True)
    except (OSError, ValueError):  # InputError is one
        return False
    return isinstance(document, dict) and document.keys() >= _KEYS
