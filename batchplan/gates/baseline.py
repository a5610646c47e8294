"""Baselines: stored evaluations of earlier plans, and whether another evaluation is comparable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.reading import read_regular
from batchplan.files.remote import no_url
from batchplan.options import check_options, option, shown
from batchplan.quality import EvaluationOptions
from batchplan.quality.metrics import judged, value_of

FORMAT_VERSION = 1
_MOST_BYTES = 16 << 20  # a baseline has a few kilobytes; a larger file is something else
_AGAIN = "write it again with --write-baseline"


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The evaluation of a plan, and everything on which it depends.

    Attributes:
        format_version: version of the stored document; newer versions are refused.
        num_rows: rows of the data, N.
        fingerprint: fingerprint of the data.
        settings: see `comparable_settings`.
        versions: versions of Python and of the libraries that measured it.
        evaluation: `Evaluation.to_dict`.
    """

    format_version: int = option(FORMAT_VERSION, "Version.", ge=FORMAT_VERSION, le=FORMAT_VERSION)
    num_rows: int
    fingerprint: str
    settings: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    evaluation: dict[str, Any]

    def __post_init__(self) -> None:
        check_options(self)

    def to_bytes(self) -> bytes:
        """The baseline as JSON, for `load`. Equal baselines give equal bytes."""
        return json.dumps(asdict(self), indent=2, allow_nan=False).encode() + b"\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Baseline:
        """Read the baseline in a file.

        Raises:
            InputError: the file is missing, is not a baseline, or has a newer version.
        """
        document = _read(no_url(path))
        version = document.get("format_version")
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise InputError(
                f"{path}: format version {version} is newer than {FORMAT_VERSION}, the newest this "
                "batchplan reads; upgrade batchplan"
            )
        try:
            known: dict[str, Any] = {f.name: document.get(f.name) for f in fields(cls)}
            baseline = cls(**known)
        except InputError as error:
            raise InputError(f"{path}: {error}; {_AGAIN}") from None
        errors = baseline.evaluation.get("standard_errors", {})
        if not (isinstance(errors, dict) and all(map(_is_error, errors.values()))):
            raise InputError(
                f"{path}: evaluation: standard_errors: got {errors!r:.80}, expected a finite "
                f"number of 0 or more by metric; {_AGAIN}"
            )
        for metric in judged():
            if not _is_number_or_none(value := value_of(baseline.evaluation, metric)):
                raise InputError(
                    f"{path}: evaluation: {metric}: got {value!r:.80}, expected a finite number or "
                    f"null; {_AGAIN}"
                )
        return baseline

    def require_comparable(
        self, settings: Mapping[str, Any], num_rows: int, where: str | os.PathLike[str]
    ) -> None:
        """Require that the baseline was measured with the same settings, on as many rows.

        Raises:
            InputError: names what differs; ``where`` is the file of this baseline.
        """
        for name, value in settings.items():
            if name not in self.settings or self.settings[name] != value:
                was = _spell(self.settings.get(name))
                raise InputError(
                    f"{where}: measured with {name.replace('_', ' ')} {was}, got {_spell(value)}; "
                    f"measure with the same, or {_AGAIN}"
                )
        if num_rows != self.num_rows:
            raise InputError(
                f"{where}: measured on {self.num_rows} rows, got {num_rows}, and the metrics "
                f"depend on their number; give as many rows, or {_AGAIN}"
            )


def comparable_settings(
    options: EvaluationOptions,
    *,
    batch_size: int,
    seed: int,
    label_column: str | None,
    group_column: str | None,
) -> dict[str, Any]:
    """Return everything on which a metric depends, except the plan and the data.

    Args:
        options: of the evaluation.
        batch_size: of the plan.
        seed: of the random plans with which the plan is compared.
        label_column, group_column: the columns that mark false negatives, None if not set.
    """
    columns = {"label_column": label_column, "group_column": group_column}
    settings = {"batch_size": batch_size, **shown(options), "seed": seed, **columns}
    del settings["sample"]  # standard errors show how exact the metrics are
    return settings


def _read(path: Path) -> dict[str, Any]:
    data = read_regular(path, _MOST_BYTES, f"a baseline; {_AGAIN}")
    try:
        document = parse_json(data)
    except ValueError as error:
        raise InputError(f"{path}: is not the JSON of a baseline ({error}); {_AGAIN}") from None
    if not isinstance(document, dict):
        raise InputError(
            f"{path}: got a {type(document).__name__}, expected the object of a baseline; {_AGAIN}"
        )
    return document


def _is_number_or_none(value: object) -> bool:
    try:
        return value is None or (
            isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        )
    except OverflowError:  # an integer too large for a float
        return False


def _is_error(value: object) -> bool:
    return value is not None and _is_number_or_none(value) and float(str(value)) >= 0


def _spell(value: object) -> str:
    return "none" if value is None else f"{value!s:.80}"
