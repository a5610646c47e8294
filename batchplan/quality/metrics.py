"""The table of all metrics, which the command line, the gates and the reports read.

A new metric is a row below with a formula over `Measured`; see docs/extending.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Literal, NamedTuple

from batchplan.quality import bounds
from batchplan.quality.losses.distribution import PERCENTS
from batchplan.quality.measured import Estimate, Measured
from batchplan.text import counted


class Column(NamedTuple):
    """A metric as a column of a table that has a line for each plan.

    Attributes:
        head: a word or two.
        text: a cell, as `Metric.format`.
        random: the cell of random batches, in the same form; empty if it was not measured.
    """

    head: str
    text: str
    random: str = ""


@dataclass(frozen=True)
class Metric:
    """A number of an evaluation.

    Attributes:
        name: its key in `Evaluation.to_dict`; dots lead to inner keys.
        label: its name in tables; empty if another metric's text shows it.
        better: the direction of a better plan; None if neither is better or no plan changes it,
            so that no gate can use it.
        format: its text, as in `str.format`: ``{}`` is the metric, a name in braces another
            metric. ``share`` is one more format specification (see `percent`).
        meaning: what it is, in a few words.
        compute: its formula, unless it is a field of `Evaluation`; None where undefined.
        column: how tables of several plans show it; None if they do not.
    """

    name: str
    label: str
    better: Literal["higher", "lower"] | None
    format: str
    meaning: str
    compute: Callable[[Measured], float | Estimate | None] | None = None
    column: Column | None = None


def columns(evaluation: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the cells of a plan and of random batches, by the heads of their columns.

    The first two columns are the hardness and, if a guard judges, the likely false negatives.
    """
    return {
        metric.column.head: cells(evaluation, metric)
        for metric in METRICS.values()
        if metric.column and value_of(evaluation, metric.name) is not None
    }


def cells(evaluation: Mapping[str, Any], metric: Metric) -> tuple[str, str]:
    """Return the cells of a plan and of random batches in the column of a metric."""
    _, text, random = metric.column or Column("", metric.format)
    own = [metric.name]
    return _TEXT.vformat(text, own, evaluation), _TEXT.vformat(random, own, evaluation)


def judged() -> dict[str, Metric]:
    """Return the metrics that a gate can use."""
    return {name: metric for name, metric in METRICS.items() if metric.better is not None}


def value_of(evaluation: Mapping[str, Any], name: str) -> Any:
    """Return the value under a dotted name of `Evaluation.to_dict`; None if there is none."""
    value: Any = evaluation
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def texts(evaluation: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the metrics that have a label, by name. Parts that were not
    measured have none.

    Estimates have their standard errors.
    """
    return {
        name: _TEXT.vformat(metric.format, [name], evaluation)
        for name, metric in METRICS.items()
        if metric.label and value_of(evaluation, name.rpartition(".")[0] or "num_rows") is not None
    }


def about(evaluation: Mapping[str, Any]) -> str:
    """Return the batches, the rows and the settings of an evaluation in words."""
    said = " of {batch_size} over {num_rows:,} rows, temperature {temperature:g}, {similarity}"
    batches = counted(evaluation["num_batches"], "batch", "batches")
    return batches + said.format_map(evaluation)


def basis(evaluation: Mapping[str, Any]) -> str:
    """Say from how many rows the figures over all rows are estimated; empty if they are exact."""
    if evaluation.get("sample") is None:
        return ""
    return (
        f"figures over all rows are estimates from {evaluation['sample']:,} sampled rows, "
        "\N{PLUS-MINUS SIGN} their standard errors; --sample 0 compares all rows"
    )


def error_of(evaluation: Mapping[str, Any], name: str) -> float:
    """Return the standard error of a figure of `Evaluation.to_dict`; 0 if it is exact."""
    return float((evaluation.get("standard_errors") or {}).get(name, 0.0))


def percent(share: float | None) -> str:
    """Return a share in percent with three digits, since it may be tiny."""
    return "undefined" if share is None else f"{100 * share:.3g}%"


class _Text(Formatter):
    """`str.format` with dotted names, ``share``, and words for None, True and False."""

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, str]:
        name = args[0] if field_name == "0" else field_name
        return (value_of(kwargs, name), error_of(kwargs, name)), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        figure, error = value
        text = self._figure(figure, format_spec)
        if not error:
            return text
        relative = format_spec == "share" or format_spec.endswith("%")
        digits = f"{100 * error:.2g}%" if relative else f"{error:.2g}"
        return f"{text} \N{PLUS-MINUS SIGN} {digits}"

    def _figure(self, value: Any, format_spec: str) -> str:
        if value is None or format_spec == "share":
            return percent(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return format(value, format_spec)


_TEXT = _Text()

_PERCENTILES = "  ".join(f"{p}%: {{similarity_percentiles.{p}:.3f}}" for p in PERCENTS)


# By name, in the order in which tables show them.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in [
        Metric("hardness", "hardness", "higher", "{:z.1%} of the gap is closed",
               "the gap reduction among true negatives; among all if no guard judges",
               column=Column("hardness", "{:z.1%}", "0.0%")),
        Metric("false_negatives", "", "lower", "{:share}",
               "share of the pairs of a batch that are likely false negatives",
               column=Column("false negatives", "{:.2%}", "{guard.false_negatives_random:.2%}")),
        Metric("loss_train", "loss", "higher", "{:.4f}", "mean loss in the batches, in nats",
               column=Column("loss", "{:.4f}", "{loss_random:.4f}")),
        Metric("loss_random", "loss, random batches", None, "{:.4f}", "the same without a plan"),
        Metric("loss_oracle", "loss, oracle", None, "{:.4f}",
               "the same if each row had its own hardest negatives"),
        Metric("loss_global", "loss, all rows", None, "{:.4f}",
               "the same if each row met all others"),
        Metric("gap", "gap to all rows", "lower", "{:z.4f} ({gap_random:z.4f} of random batches)",
               "the loss of all rows less the loss of the plan"),
        Metric("oracle_share", "share of the way to the oracle", "higher", "{:z.1%}",
               "from random batches to the oracle",
               column=Column("oracle", "{:z.1%}", "0.0%")),
        Metric("gap_reduction", "gap reduction, all pairs", "higher",
               "{:z.1%} of the gap of random batches",
               "share of the gap between random batches and all rows that the plan closes",
               column=Column("reduction", "{:z.1%}", "0.0%")),
        Metric("random_z", "against random", "higher",
               "z = {:+.1f} (standard deviation {loss_random_std:.4f})",
               "standard deviations of random plans above their mean loss"),
        Metric("hard_negative_recall.1", "hard negatives in batch", "higher",
               "{:.1%} of the 1 hardest, {hard_negative_recall.10:.1%} of the 10 hardest",
               "share of each row's hardest negatives that share its batch"),
        Metric("hard_negative_recall.10", "", "higher", "{:.1%}",
               "share of each row's ten hardest negatives that share its batch"),
        Metric("bound_36", "bounds of the gap", "lower", "{:.3f} (3.6), {bound_37:.3f} (3.7)",
               "upper bounds by theorems 3.6 and 3.7 of GCBS", bounds.bound_36),
        Metric("bound_37", "", "lower", "{:.3f}", "upper bound of the gap by theorem 3.7 of GCBS",
               bounds.bound_37),
        Metric("qap_objective", "quadratic assignment", "higher", "{:,.1f}",
               "sum of all similarities within batches, both ways", bounds.qap_objective),
        Metric("bottleneck", "bottleneck similarity", "higher", "{:.4f}",
               "the smallest similarity of two rows of a batch", bounds.bottleneck),
        Metric("edge_recall", "largest similarities in batch", "higher", "{:.1%}",
               "share of the largest similarities of all whose rows share a batch",
               bounds.edge_recall),
        Metric("bandwidth", "bandwidth", "lower", "{:,}",
               "largest distance between the rows of such a similarity in the order of the plan",
               bounds.bandwidth),
        Metric("positive_probability", "probability of the positive", "lower",
               "{:.4f} ({positive_probability_random:.4f} in random batches, "
               "{positive_probability_global:.4f} among all rows)",
               "mean softmax probability of the positive in the batch; lower is harder"),
        Metric("positive_probability_random", "", None, "{:.4f}",
               "the same in random batches", bounds.probability_at_random),
        Metric("positive_probability_global", "", None, "{:.4f}",
               "the same if each row met all others", bounds.probability_of_all),
        Metric("similarity_percentiles.50", "in-batch similarity", None, _PERCENTILES,
               "percentiles of the similarities of all negatives"),
        Metric("answers.known", "known answers as negatives", "lower",
               "{:,} of {answers.negatives:,} ({answers.share:share}, "
               "{answers.share_random:share} at random)",
               "negatives of a batch that are known answers of the anchor"),
        Metric("guard.broken", "pairs that break the guard", "lower",
               "{:,} of {guard.pairs:,} ({guard.false_negatives:share}, "
               "{guard.false_negatives_random:share} at random)",
               "pairs of a batch that are likely false negatives"),
        Metric("guard.rows_affected", "why they break it", "lower",
               "{guard.by.similarity:,} by similarity, {guard.by.group:,} by group, "
               "{guard.by.duplicate:,} by duplicate, {guard.by.known:,} by known answer; {:,} rows",
               "such pairs by reason, and the rows in any of them"),
        Metric("guard.mined.broken", "of them by a mined negative", None,
               "{:,}: the negative of one row is too similar to the anchor of the other",
               "such pairs of a mined negative, whose positives are not too similar"),
        Metric("guard.mined.false", "false mined negatives", None,
               "{:,} of {guard.mined.negatives:,}, in {guard.mined.rows_affected:,} rows: too "
               "similar to their own anchor",
               "mined negatives that are likely positives of their own row"),
        Metric("guard.loss_train", "loss, without them", "higher", "{:.4f}",
               "loss without such pairs"),
        Metric("guard.gap", "", "lower", "{:z.4f}", "gap without such pairs"),
        Metric("coverage.rows_seen", "rows in the plan", "higher",
               "{:,} ({coverage.share_seen:.1%}), {coverage.repeats:,} repeats, none more than "
               "{coverage.most_repeated:,} times", "distinct rows of the epoch"),
        Metric("coverage.rows_never_seen", "", "lower", "{:,}", "rows that the plan leaves out"),
        Metric("coverage.share_seen", "", "higher", "{:.1%}", "share of the rows in the plan",
               column=Column("seen", "{:.0%}", "100%")),
        Metric("coverage.repeats", "", "lower", "{:,}", "entries beyond the first of each row"),
        Metric("coverage.most_repeated", "", "lower", "{:,}", "entries of the most frequent row"),
        Metric("partitions_rows", "each row once", None, "{}",
               "whether every row occurs exactly once"),
    ]
}  # fmt: skip
