"""Reads the run times of planners from the summaries that they print with ``--json``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.reading import read_regular
from batchplan.files.remote import no_url

_MOST_BYTES = 16 << 20  # a summary has about a kilobyte

_LONGEST = 1e12  # seconds; an integer may be more than a float can hold


def read_seconds(
    summaries: Sequence[str], paths: Mapping[str, str], fingerprint: str
) -> dict[str, dict[str, float]]:
    """The seconds of each stage by plan.

    Args:
        summaries: files with the output of ``batchplan PLANNER --json``.
        paths: the file of each plan, by its name in the report.
        fingerprint: of the data.

    Raises:
        InputError: a file is missing, is not a summary, fits none or several of the plans, or is
            of other data.
    """
    seconds: dict[str, dict[str, float]] = {}
    for file in summaries:
        document = _summary(file)
        output = document["output"]
        named = [name for name, path in paths.items() if path == output] or [
            name for name, path in paths.items() if Path(path).name == Path(output).name
        ]
        if len(named) != 1 or named[0] in seconds:
            raise InputError(
                f"{file}: got a summary of {output!r}, which is {'several' if named else 'none'} "
                "of the plans or has a summary already; give one summary per plan"
            )
        if document.get("fingerprint") != fingerprint:
            raise InputError(
                f"{file}: is a summary of other data (fingerprint {document.get('fingerprint')}, "
                f"expected {fingerprint}); give the summary of this plan"
            )
        seconds[named[0]] = document["seconds"]
    return seconds


def _summary(file: str) -> dict[str, Any]:
    expected = "the output of batchplan PLANNER --json"
    content = read_regular(no_url(file), _MOST_BYTES, expected)
    try:
        document = parse_json(content, any_text=True)
    except ValueError as error:
        raise InputError(f"{file}: not JSON ({error}), expected {expected}") from error
    seconds = document.get("seconds") if isinstance(document, dict) else None
    if not (
        isinstance(seconds, dict)
        and isinstance(document.get("output"), str)
        and all(type(s) in (int, float) and 0 <= s < _LONGEST for s in seconds.values())
    ):
        raise InputError(f"{file}: has no output or no seconds, expected {expected}")
    return {**document}
