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


Dots = dict[str, dict[str, list[tuple[float, float]]]]  # by title of the panel, and by start


def main() -> None:
    runs = json.loads(Path(sys.argv[1]).read_text())
    with matplotlib.rc_context(STYLE):
        Path(sys.argv[2]).write_bytes(to_svg(drawn(dots(runs))))


def dots(runs: Runs) -> Dots:
    """For each figure and start, the figure and the gain of each plan: means over seeds."""
    return {
        title: {
            start: [
                (sum(of(run) for run in own) / len(own),
                 100 * sum(run["gain"] for run in own) / len(own))
                for own in paired(runs, start).values()
            ]
            for start in _STARTS
        }
        for of, title in ((candidates()[name], title) for name, title in _FIGURES.items())
    }  # fmt: skip


def drawn(dots: Dots) -> Figure:
    """A panel for each figure, a dot for each plan of each start."""
    # one panel below the other, for narrow windows
    figure = Figure(figsize=(360 / 72, 230 * len(dots) / 72), layout="constrained")
    panels = figure.subplots(len(dots), 1)
    for axes, (title, of_starts) in zip(panels, dots.items(), strict=True):
        for (start, own), colour in zip(of_starts.items(), PLANS, strict=False):
            label, marker = _STARTS[start]
            axes.plot(
                *zip(*own, strict=True), marker, color=colour, markersize=6, alpha=0.8, label=label
            )
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_xlabel(f"{title}, of the first plan")
        axes.set_ylabel("gain in MRR points")
    panels[-1].legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
