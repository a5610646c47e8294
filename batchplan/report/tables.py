"""The tables of a report: rows of texts."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from batchplan.quality.metrics import METRICS, texts
from batchplan.report.contents import PlanContents, ReportContents

_NONE = "\N{EN DASH}"


@dataclass(frozen=True)
class Row:
    """A row of a table: what it is, what that means, and a value for each plan."""

    name: str
    meaning: str
    values: list[str]


def key_figures(contents: ReportContents) -> list[Row]:
    """The metrics of the evaluations."""
    found = [texts(one.evaluation) for one in contents.plans]
    return [
        Row(metric.label, metric.meaning, [one[name] for one in found])
        for name, metric in METRICS.items()
        if name in found[0]  # plans are measured alike
    ]


def stage_seconds(contents: ReportContents) -> list[Row]:
    """Seconds of planning by stage, of the plans whose summaries were given."""
    known = [one.seconds for one in contents.plans]
    stages = list(dict.fromkeys(stage for one in known for stage in one or ()))
    rows = [
        Row(stage, "", [_NONE if one is None else _seconds(one.get(stage)) for one in known])
        for stage in stages
    ]
    if rows:
        sums = [_NONE if one is None else _seconds(sum(one.values())) for one in known]
        rows.append(Row("all stages", "", sums))
    return rows


def settings(contents: ReportContents) -> Iterator[tuple[str, str]]:
    """What was measured, and how."""
    data = contents.embeddings
    yield "data", f"{data.num_rows:,} {'pairs' if data.paired else 'rows, one matrix'}"
    yield "dimensions", f"{data.dim:,}"
    yield "fingerprint", data.fingerprint
    for name, value in asdict(contents.options).items():
        if value is not None:
            yield name.replace("_", " "), _plain(value)
    yield "seed", str(contents.seed)


def plan_facts(one: PlanContents) -> Iterator[tuple[str, str]]:
    """The metadata of a plan."""
    for name, value in one.plan.metadata.to_dict().items():
        if isinstance(value, dict):
            for key, inner in value.items():
                yield f"{name}: {key.replace('_', ' ')}", _plain(inner)
        else:
            yield name.replace("_", " "), _plain(value)


def _plain(value: Any) -> str:
    if value is None or value == "":
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"
