"""Writes the tables of a report, as text."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from batchplan.options import shown
from batchplan.quality.metrics import METRICS, texts
from batchplan.report.contents import PlanContents, ReportContents

_NONE = "\N{EN DASH}"


class Row(NamedTuple):
    """A row of a table: a name, its meaning and a value for each plan."""

    name: str
    meaning: str
    values: list[str]


def key_figures(contents: ReportContents) -> list[Row]:
    """Return the metrics of the evaluations."""
    plans = [texts(plan.evaluation.to_dict()) for plan in contents.plans]
    return [
        Row(metric.label, metric.meaning, [values[name] for values in plans])
        for name, metric in METRICS.items()
        if name in plans[0]  # all plans have the same metrics
    ]


def settings(contents: ReportContents) -> Iterator[tuple[str, str]]:
    """Yield the data and the settings of the evaluation."""
    data = contents.embeddings
    yield "data", f"{data.num_rows:,} {'pairs' if data.paired else 'rows, one matrix'}"
    yield "dimensions", f"{data.dim:,}"
    yield "fingerprint", data.fingerprint
    for name, value in shown(contents.options).items():
        if value is not None:
            yield name.replace("_", " "), plain(value)
    yield "seed", str(contents.seed)
    if contents.expected:
        yield "plans of similar data gained", contents.expected


def plan_facts(plan: PlanContents) -> Iterator[tuple[str, str]]:
    """Yield the metadata of a plan."""
    for name, value in plan.plan.metadata.to_dict().items():
        if isinstance(value, dict):
            for key, inner in value.items():
                yield f"{name}: {key.replace('_', ' ')}", plain(inner)
        else:
            yield name.replace("_", " "), plain(value)


def plain(value: Any) -> str:
    """Return a value of the metadata as text."""
    if value is None or value == "":
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
