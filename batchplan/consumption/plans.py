"""Reads the plans with which a trace is compared."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.remote import no_url
from batchplan.plans.formats import FORMATS
from batchplan.plans.plan import Plan

_NAME = re.compile(r"(?:plan|rest)-(\d{1,5})\.\w+")  # as `batchplan.training.EpochPlans` has it


def read_plans(
    paths: Sequence[str | os.PathLike[str]], *, batch_size: int | None = None
) -> dict[int, Plan]:
    """Return plans by their first epoch.

    Args:
        paths: plan files, and folders of plan files named ``plan-0000.npz`` and so on, by epoch.
            Files with other names are for the epochs 0, 1, 2 and so on, in the given order.
        batch_size: batch size of a plan file without metadata.

    Raises:
        InputError: a file is not a plan, a folder has none, or has another one for an epoch.
    """
    files: list[Path] = []
    epochs: dict[int | None, Path] = {}
    for path in map(no_url, paths):
        if not path.is_dir():
            files.append(path)
            epochs.setdefault(_epoch(path), path)
            continue
        own = [file for file in sorted(path.glob("plan-*")) if file.suffix in FORMATS]
        own = [file for file in own if _epoch(file) is not None]
        if not own:
            raise InputError(
                f"{path}: has no plan-0000.npz or the like; give plan files. Plans of several data "
                "sets are joined in memory: plans.existing(0).save('plan-0000.npz') saves those of "
                "epoch 0"
            )
        for file in own:
            if (twin := epochs.setdefault(_epoch(file), file)) is not file:
                raise InputError(
                    f"{file}: is of the same epoch as {twin}; give the plans of one run"
                )
        files += map(_with_rest, own)
    numbers = [number for number in map(_epoch, files) if number is not None]
    if len(set(numbers)) != len(files):
        numbers = list(range(len(files)))
    numbered = sorted(zip(numbers, files, strict=True))
    return {number: Plan.load(file, batch_size=batch_size) for number, file in numbered}


def _epoch(path: Path) -> int | None:
    """Return the epoch that the name of a file says; None if it says none."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def _with_rest(path: Path) -> Path:
    """Return the plan of an epoch with its planned rest, if only the first batches were random."""
    rest = path.with_name(path.name.replace("plan-", "rest-"))
    return rest if rest.exists() else path
