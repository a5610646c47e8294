"""The runs as a Markdown table."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

from tests.benchmarks.training.plans import SHUFFLED, written_out

COLUMNS = ["rate", "MRR", "gain by seed", "mean", "sd", "best epoch", "plan s", "train s"]


def markdown(runs: list[dict[str, Any]]) -> str:
    """A line for each setting and rate: scores in hundredths, gains over `shuffled` at its own
    learning rate, of the same seed and so many rows and epochs."""
    base = {_of(run): run["mrr"] for run in runs if (run["plan"], run["rate"]) == (SHUFFLED, 1)}
    lines = [["", *COLUMNS], ["---"] * (len(COLUMNS) + 1)]
    for setting, rate in dict.fromkeys((run["plan"], run["rate"]) for run in runs):
        own = [run for run in runs if (run["plan"], run["rate"]) == (setting, rate)]
        gains = [100 * (run["mrr"] - base[_of(run)]) for run in own]
        seconds = [mean(sum(run["seconds"][name]) for run in own) for name in ("plan", "train")]
        best = [run["scores"].index(max(run["scores"])) + 1 for run in own]
        score = 100 * mean(run["mrr"] for run in own)
        lines.append([
            f"`{written_out(setting)}`", f"{rate:g}", f"{score:.2f}",
            " ".join(f"{gain:+.2f}" for gain in gains), f"{mean(gains):+.2f}",
            f"{stdev(gains) if len(gains) > 1 else 0:.2f}", f"{mean(best):.1f}",
            *(f"{value:.1f}" for value in seconds),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run[name] for name in ("seed", "rows", "small", "epochs"))
