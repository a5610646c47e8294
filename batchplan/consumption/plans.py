"""Reads the plans that a trace is compared with, by the first epoch that each is for."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.remote import no_url
from batchplan.materialize.manifest import NAME, Manifest
from batchplan.plans.plan import Plan

_EPOCH = re.compile(r"plan-(\d+)\.\w+")  # as `batchplan.training.EpochPlans` names them


def read_plans(
    paths: Sequence[str | os.PathLike[str]], *, batch_size: int | None = None
) -> dict[int, Plan]:
    """The plans by the first epoch that each is for.

    Args:
        paths: plans; folders of plans ``plan-0000.npz`` and so on, whose names say the epoch;
            and folders that `batchplan materialize` wrote, beside their plan. Files with other
            names are for the epochs 0, 1, 2 and so on, in this order.
        batch_size: of a plan file without metadata.

    Raises:
        InputError: a file that is no plan, no plan at all, or a folder written for another plan.
    """
    files: list[Path] = []
    manifests: dict[Path, Manifest] = {}
    for path in map(no_url, paths):
        if (path / NAME).exists():
            manifests[path] = Manifest.load(path)
        elif path.is_dir():
            own = sorted(file for file in path.iterdir() if _EPOCH.fullmatch(file.name))
            files += [file for file in own if file.suffix != ".json"]
            if not own:
                raise InputError(f"{path}: holds no plan-0000.npz or the like; give plan files")
        else:
            files.append(path)
    names = [_EPOCH.fullmatch(file.name) for file in files]
    numbers = [int(name[1]) for name in names if name]
    if len(set(numbers)) != len(files):
        numbers = list(range(len(files)))
    loaded = [Plan.load(file, batch_size=batch_size) for file in files]
    plans = dict(sorted(zip(numbers, loaded, strict=True), key=lambda item: item[0]))
    if not plans:
        raise InputError("plans: got none; a folder of materialized data needs its plan beside it")
    digests = {plan.digest for plan in plans.values()}
    for path, manifest in manifests.items():
        if manifest.plan not in digests:
            raise InputError(
                f"{path}: was written for the plan with digest {manifest.plan}, which is none of "
                "those to compare with; materialize again, or give its plan"
            )
    return plans
