"""The runs as a Markdown table."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

from tests.benchmarks.training.plans import SETTINGS, SHUFFLED

COLUMNS = ["MRR", "sd", "each seed", "less shuffled", "sd", "epochs", "plan s", "train s"]


def markdown(runs: dict[str, list[dict[str, Any]]]) -> str:
    """A line for each setting: means over seeds, and differences paired by seed."""
    base = [run["mrr"] for run in runs[SHUFFLED]]
    lines = [["", *COLUMNS], ["---"] * (len(COLUMNS) + 1)]
    for setting, found in runs.items():
        scores = [run["mrr"] for run in found]
        gains = [score - other for score, other in zip(scores, base, strict=True)]
        epochs = mean(len(run["scores"]) for run in found)
        seconds = [mean(run["seconds"][name] for run in found) for name in ("plan", "train")]
        lines.append([
            f"`{SETTINGS.get(setting, setting)}`", f"{mean(scores):.4f}", f"{_spread(scores):.4f}",
            " ".join(f"{score:.4f}" for score in scores),
            f"{mean(gains):+.4f}", f"{_spread(gains):.4f}", f"{epochs:.3g}",
            *(f"{value:.1f}" for value in seconds),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
