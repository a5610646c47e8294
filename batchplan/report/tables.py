"""The tables of a report: rows of texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from batchplan.quality import Evaluation
from batchplan.report.contents import Contents, PlanContents

_NONE = "\N{EN DASH}"


@dataclass(frozen=True)
class Row:
    """A row of a table: what it is, what that means, and a value for each plan."""

    name: str
    meaning: str
    values: list[str]


def key_figures(contents: Contents) -> list[Row]:
    """The numbers of the evaluations that tell plans apart."""
    found = [one.evaluation for one in contents.plans]
    rows = [Row(name, meaning, [of(one) for one in found]) for name, meaning, of in _FIGURES]
    for size in found[0].hard_negative_recall:
        recalls = [f"{one.hard_negative_recall[size]:.1%}" for one in found]
        text = "share of each row's hardest negatives that share its batch"
        rows.append(Row(f"recall of the {size} hardest", text, recalls))
    for kind in found[0].false_negatives:
        named = [one.false_negatives[kind] for one in found]
        said = [f"{percent(one.rate)} ({percent(one.rate_random)} at random)" for one in named]
        text = "pairs of a batch with the same value"
        rows.append(Row(f"same {named[0].column or kind}", text, said))
    guards = [one.guard for one in found if one.guard is not None]
    if guards:
        said = [
            f"{percent(one.broken_share)} ({percent(one.broken_share_random)} at random)"
            for one in guards
        ]
        rows.append(Row("break the guard", "pairs of a batch that are likely no negatives", said))
        reduced = [f"{one.gap_reduction:z.1%}" for one in guards]
        rows.append(Row("gap reduction, guarded", "the same as above, over allowed pairs", reduced))
    return rows


def percent(share: float | None) -> str:
    """A share that may be tiny: two decimals, or one digit of what these would round to 0."""
    if share is None:
        return "undefined"
    return f"{100 * share:.1g}%" if 0 < share < 5e-5 else f"{share:.2%}"


def stage_seconds(contents: Contents) -> list[Row]:
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


def settings(contents: Contents) -> Iterator[tuple[str, str]]:
    """What was measured, and how."""
    yield "data", f"{contents.num_rows:,} {'pairs' if contents.paired else 'rows, one matrix'}"
    yield "dimensions", f"{contents.dim:,}"
    yield "fingerprint", contents.fingerprint
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


def _or_none(value: float | None, style: str) -> str:
    return "undefined" if value is None else format(value, style)


def _covered(one: Evaluation) -> str:
    found = one.coverage
    if one.partitions_rows:
        return "every row once"
    return f"{found.share_seen:.1%}, up to {found.most_repeated:,} times"


_FIGURES: list[tuple[str, str, Callable[[Evaluation], str]]] = [
    ("loss", "mean loss in the plan's batches, in nats", lambda e: f"{e.loss_train:.4f}"),
    ("loss, random batches", "the same without a plan", lambda e: f"{e.loss_random:.4f}"),
    ("loss, oracle", "if each row had its own hardest negatives", lambda e: f"{e.loss_oracle:.4f}"),
    ("loss, all rows", "if each row met all others", lambda e: f"{e.loss_global:.4f}"),
    (
        "gap reduction",
        "share of the gap between random batches and all rows that the plan closes",
        lambda e: f"{e.gap_reduction:z.1%}",
    ),
    (
        "way to the oracle",
        "how far from random batches to the oracle",
        lambda e: f"{e.oracle_share:z.1%}",
    ),
    (
        "against random",
        "standard deviations of random plans above their mean",
        lambda e: "undefined" if e.random_z is None else f"{e.random_z:+.1f}",
    ),
    (
        "probability of the own pair",
        "mean softmax probability in the batch; lower is harder",
        lambda e: f"{e.positive_probability:.4f}",
    ),
    (
        "edges inside batches",
        "share of the most similar pairs of all that share a batch",
        lambda e: f"{e.edge_recall:.1%} of {e.edges:,}",
    ),
    (
        "bandwidth",
        "largest distance of two such rows in the order",
        lambda e: _or_none(e.bandwidth, ","),
    ),
    ("batches", "of the epoch", lambda e: f"{e.num_batches:,}"),
    ("rows seen", "in the epoch", _covered),
]
