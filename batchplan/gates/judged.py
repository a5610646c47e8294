"""The metrics that a gate can stand on, and which direction is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

_GUARD = ("max_similarity", "margin", "group_column")


@dataclass(frozen=True)
class Judged:
    """What is known of a metric.

    Attributes:
        better: the direction in which a plan gets better.
        needs: settings of which one must be given, or the metric is not measured.
    """

    better: Literal["higher", "lower"]
    needs: tuple[str, ...] = ()


# By the names of `Evaluation.to_dict`. Metrics without a better direction are not here, nor are
# those that no plan can change, nor times.
JUDGED: dict[str, Judged] = {
    "loss_train": Judged("higher"),
    "gap": Judged("lower"),
    "random_z": Judged("higher"),
    "gap_reduction": Judged("higher"),
    "oracle_share": Judged("higher"),
    "bound_36": Judged("lower"),
    "bound_37": Judged("lower"),
    "qap_objective": Judged("higher"),
    "bottleneck": Judged("higher"),
    "bandwidth": Judged("lower"),
    "edge_recall": Judged("higher"),
    "hard_negative_recall.1": Judged("higher"),
    "hard_negative_recall.10": Judged("higher"),
    "positive_probability": Judged("lower"),
    "false_negatives.labels.rate": Judged("lower", ("labels",)),
    "false_negatives.labels.ratio": Judged("lower", ("labels",)),
    "false_negatives.group.rate": Judged("lower", ("group_column",)),
    "false_negatives.group.ratio": Judged("lower", ("group_column",)),
    "guard.broken": Judged("lower", _GUARD),
    "guard.broken_share": Judged("lower", _GUARD),
    "guard.rows_affected": Judged("lower", _GUARD),
    "guard.loss_train": Judged("higher", _GUARD),
    "guard.gap": Judged("lower", _GUARD),
    "guard.gap_reduction": Judged("higher", _GUARD),
    "coverage.rows_seen": Judged("higher"),
    "coverage.rows_never_seen": Judged("lower"),
    "coverage.share_seen": Judged("higher"),
    "coverage.repeats": Judged("lower"),
    "coverage.most_repeated": Judged("lower"),
}


def value_of(evaluation: Mapping[str, Any], metric: str) -> Any:
    """The value under a dotted name, None where the evaluation has none."""
    value: Any = evaluation
    for key in metric.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
