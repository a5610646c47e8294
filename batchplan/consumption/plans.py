"""Reads the plans with which a trace is compared."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.remote import no_url
from batchplan.plans.formats import FORMATS
from batchplan.plans.plan import Plan

_EPOCH = re.compile(r"plan-(\d{1,5})\.\w+")  # as `batchplan.training.EpochPlans` names them


def read_plans(
    paths: Sequence[str | os.PathLike[str]], *, batch_size: int | None = None
) -> dict[int, Plan]:
    """Return plans by their first epoch.

    Args:
        paths: plan files, and folders of plan files named ``plan-0000.npz`` and so on, by epoch.
            Files with other names are for the epochs 0, 1, 2 and so on, in the given order.
        batch_size: batch size of a plan file without metadata.

    Raises:
        InputError: a file is not a plan, or a folder has none.
    """
    files: list[Path] = []
    for path in map(no_url, paths):
        if path.is_dir():
            own = [file for file in path.iterdir() if _EPOCH.fullmatch(file.name)]
            own = [_with_rest(file) for file in sorted(own) if file.suffix in FORMATS]
            if not own:
                raise InputError(
                    f"{path}: has no plan-0000.npz or the like; give plan files. Plans of several "
                    "data sets are joined in memory: plans.existing(0).save('plan-0000.npz') saves "
                    "those of epoch 0"
                )
            for file in own:
                if twin := next((one for one in files if one.stem == file.stem), None):
                    raise InputError(
                        f"{file}: is of the same epoch as {twin}; give the plans of one run"
                    )
            files += own
        else:
            files.append(path)
    names = [_EPOCH.fullmatch(file.name.replace("rest-", "plan-")) for file in files]
    numbers = [int(name[1]) for name in names if name]
    if len(set(numbers)) != len(files):
        numbers = list(range(len(files)))
    numbered = sorted(zip(numbers, files, strict=True))
    return {number: Plan.load(file, batch_size=batch_size) for number, file in numbered}


def _with_rest(path: Path) -> Path:
    """Return the plan of an epoch with its planned rest, if only the first batches were random."""
    rest = path.with_name(path.name.replace("plan-", "rest-"))
    return rest if rest.exists() else path
