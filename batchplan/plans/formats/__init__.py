"""The file formats of plans; docs/extending.md shows how to add another."""

from importlib import import_module
from pathlib import Path

from batchplan.errors import InputError
from batchplan.plans.formats.contents import PlanFormat

# By suffix, the module with the FORMAT that writes and reads the file; imported on use.
FORMATS = {
    ".npy": "batchplan.plans.formats.npy",
    ".parquet": "batchplan.plans.formats.parquet",
    ".npz": "batchplan.plans.formats.npz",
    ".jsonl": "batchplan.plans.formats.jsonl",
    ".txt": "batchplan.plans.formats.txt",
}


def format_of(path: Path) -> PlanFormat:
    """Return the format that the suffix of the path names.

    Raises:
        InputError: an unknown suffix, or none.
    """
    module = FORMATS.get(path.suffix.lower())
    if module is None:
        raise InputError(
            f"{path}: suffix {path.suffix!r}, expected one of {', '.join(FORMATS)} for a plan"
        )
    form: PlanFormat = import_module(module).FORMAT
    return form
