"""``python -m tests.benchmarks.training.picture runs.json gains.svg``: the gain of each plan in
training by its gap reduction, over all pairs and over those that a guard allows.

The runs are those of `tests.benchmarks.training.predictors`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from batchplan.report.palette import INK, PLANS, STYLE
from batchplan.report.render import to_svg
from tests.benchmarks.training.predictors import Runs, candidates, paired

_FIGURES = {
    "gap reduction": "gap reduction, all pairs",
    "guarded gap reduction @0.1": "gap reduction, allowed pairs",
}
_STARTS = {"pretrained": ("pretrained", "o"), "frozen": ("frozen vectors", "s")}


def main() -> None:
    runs = json.loads(Path(sys.argv[1]).read_text())
    with matplotlib.rc_context(STYLE):
        Path(sys.argv[2]).write_bytes(to_svg(drawn(runs)))


def drawn(runs: Runs) -> Figure:
    """A panel for each figure, a dot for each plan of each start: means over seeds."""
    figure = Figure(figsize=(680 / 72, 260 / 72), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, (name, title) in zip((left, right), _FIGURES.items(), strict=True):
        of = candidates()[name]
        for (start, (label, marker)), colour in zip(_STARTS.items(), PLANS, strict=False):
            dots = [
                (sum(of(run) for run in own) / len(own),
                 100 * sum(run["gain"] for run in own) / len(own))
                for own in paired(runs, start).values()
            ]  # fmt: skip
            axes.plot(
                *zip(*dots, strict=True), marker, color=colour, markersize=6, alpha=0.8, label=label
            )
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_xlabel(f"{title}, of the first plan")
    left.set_ylabel("gain in MRR points")
    left.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
