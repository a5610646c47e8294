"""The metadata of a plan in a JSON file next to it, for formats that cannot hold metadata."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.atomic import older_path
from batchplan.files.documents import parse_json
from batchplan.files.reading import open_regular, read_all

# Keys by which the metadata of a plan are recognised.
_KEYS = {"format_version", "planner", "batch_size", "num_rows", "digest"}
# Batch offsets grow with the plan: about 20 bytes per batch, which takes at least 4 in the plan.
_MOST_BYTES, _MOST_TIMES = 16 << 20, 16
_TRIES = 100  # opening takes microseconds, and the fsyncs of a save milliseconds
_WHAT = "the metadata of a plan"


def sidecar_path(path: Path) -> Path:
    """Return the metadata file of a plan: ``plan.npy.json`` next to ``plan.npy``.

    For a symbolic link, it is next to the link, or next to the target if it exists only there.
    """
    beside, beside_target = sidecar_places(path)
    at_target = os.path.exists(beside_target) and not os.path.exists(beside)
    return beside_target if at_target else beside


def sidecar_places(path: Path) -> tuple[Path, Path]:
    """Return where the metadata may be: next to a file, then next to its link target."""
    target = without_links(path) if os.path.islink(path) else path
    return path.with_name(f"{path.name}.json"), target.with_name(f"{target.name}.json")


def without_links(path: Path) -> Path:
    """Return the path without links; unchanged if it vanishes while they are followed."""
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError:  # a link, or a working directory that a path is relative to
        return path


@contextmanager
def opened_with_sidecars(path: Path) -> Iterator[tuple[BufferedReader, dict[Path, bytes]]]:
    """Open a plan; yield it and its metadata by file.

    The metadata are the sidecar, then the older sidecar if a save is running or was killed. One of
    them belongs to the plan, unless the plan has no metadata. A save replaces the sidecar, then the
    plan, and keeps the older sidecar in between. So if plan and sidecar are the same before and
    after all three are opened, all were there at the same time; otherwise this tries again.

    Raises:
        InputError: a file cannot be read or is not a regular file, or the metadata are too large
            for this plan.
    """
    for tries_left in reversed(range(_TRIES)):
        with ExitStack() as files:
            stream = files.enter_context(open_regular(path, "a plan"))
            most = _MOST_BYTES + _MOST_TIMES * os.fstat(stream.fileno()).st_size
            sidecar, found = sidecar_path(path), {}
            beside = _open(sidecar, files)
            if beside is not None:
                found[sidecar] = read_all(beside, sidecar, most, _WHAT)
                older = older_path(sidecar)
                with suppress(InputError):  # made by others, perhaps; the plan may not need it
                    if (opened := _open(older, files)) is not None:
                        found[older] = read_all(opened, older, most, _WHAT)
            if tries_left and not (_is_at(path, stream) and _is_at(sidecar, beside)):
                continue
            yield stream, found
            return


def _open(path: Path, files: ExitStack) -> BufferedReader | None:
    """Open a file until ``files`` is closed; return None if it does not exist."""
    try:
        return files.enter_context(open_regular(path, _WHAT))
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _is_at(path: Path, stream: BufferedReader | None) -> bool:
    """Return whether a path still names the file that was opened, or still no file."""
    try:
        now = os.stat(path)
    except OSError:
        return stream is None
    return stream is not None and os.path.samestat(now, os.fstat(stream.fileno()))


def has_plan_metadata(path: Path) -> bool:
    """Return whether a JSON file next to this file says that it is a plan."""
    try:
        with opened_with_sidecars(path) as (_, found):
            text = next(iter(found.values()), b"null") or b"null"
            document = parse_json(text, any_text=True)
    except (OSError, ValueError):  # InputError is one
        return False
    return isinstance(document, dict) and document.keys() >= _KEYS
