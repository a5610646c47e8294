"""Where a report and its pictures can be written."""

import os
from collections.abc import Sequence
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.inputs import check_kept
from batchplan.plans.output import check_file

_SUFFIXES = ".html", ".htm"


def check_report_output(
    output: str | os.PathLike[str],
    png: str | os.PathLike[str] | None,
    *,
    force: bool,
    inputs: Sequence[str | os.PathLike[str]],
) -> None:
    """Refuse paths at which a report, or the folder of its pictures, cannot be written.

    Raises:
        InputError: a suffix other than ``.html``; a file or folder that cannot be used, or that
            exists without ``force``.
    """
    page = Path(output)
    if page.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"{page}: a report is an HTML page; choose a name that ends in {_SUFFIXES[0]}"
        )
    check_file(page, force, inputs)
    if png is None:
        return
    folder = Path(png)
    if os.path.isdir(folder):
        if not force:
            raise InputError(
                f"{folder}: exists already; write into it with --force or choose another folder"
            )
        # Whether the folder can be written to; the name is not that of a picture.
        check_file(folder / "picture.png", force, inputs)
        for picture in folder.glob("*.png"):  # any may be a link to an input
            check_kept(picture, inputs)
    elif os.path.exists(folder):
        raise InputError(
            f"{folder}: is a file, expected a folder for the pictures; choose another path"
        )
    else:
        check_file(folder, force, inputs)
