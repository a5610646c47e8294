"""Baselines: stored evaluations of earlier plans, and whether another evaluation is comparable."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.reading import read_regular
from batchplan.files.remote import no_url
from batchplan.options import check_options, shown
from batchplan.quality import EvaluationOptions

FORMAT_VERSION = 1
_MOST_BYTES = 16 << 20  # a baseline has a few kilobytes; a larger file is something else
_AGAIN = "write it again with --write-baseline"


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The evaluation of a plan, and everything on which it depends.

    Attributes:
        format_version: version of the stored document; others are refused.
        num_rows: rows of the data, N.
        fingerprint: fingerprint of the data.
        settings: see `comparable_settings`.
        evaluation: `Evaluation.to_dict`.
    """

    format_version: int = FORMAT_VERSION
    num_rows: int
    fingerprint: str
    settings: dict[str, Any]
    evaluation: dict[str, Any]

    def __post_init__(self) -> None:
        check_options(self)

    def to_bytes(self) -> bytes:
        """The baseline as JSON, for `load`. Equal baselines give equal bytes."""
        return json.dumps(asdict(self), indent=2, allow_nan=False).encode() + b"\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Baseline":
        """Read the baseline in a file.

        Raises:
            InputError: the file is missing, or is not a baseline of this version.
        """
        data = read_regular(no_url(path), _MOST_BYTES, f"a baseline; {_AGAIN}")
        try:
            document = parse_json(data)
            if document["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format version {document['format_version']!r:.80}")
            return cls(**{one.name: document[one.name] for one in fields(cls)})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}: is not a baseline of this version ({error}); {_AGAIN}"
            ) from None

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
    group_column: str | None,
) -> dict[str, Any]:
    """Return everything on which a metric depends, except the plan and the data.

    Args:
        options: of the evaluation.
        batch_size: of the plan.
        seed: of the random plans with which the plan is compared.
        group_column: the column of groups, None if not set.
    """
    settings = {"batch_size": batch_size, **shown(options), "seed": seed}
    settings["group_column"] = group_column
    del settings["sample"]  # standard errors show how exact the metrics are
    del settings["edges"]  # decides what is measured, not how
    return settings


def _spell(value: object) -> str:
    return "none" if value is None else f"{value!s:.80}"
