"""The loss of each plan between that of random batches and that of all rows (GCBS, figure 1)."""

from __future__ import annotations

from typing import Any

from matplotlib.lines import Line2D

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, names, new_figure
from batchplan.report.palette import GRID, INK, PLANS, RANDOM


def losses(contents: ReportContents) -> Picture:
    """A scale for each plan, all in the same nats."""
    count = len(contents.plans)
    figure, axes = new_figure(max(240, 92 + 40 * count))
    marks: dict[str, dict[str, Any]] = {
        "random batches": {"marker": "o", "color": RANDOM, "markersize": 6},
        "oracle": {"marker": "D", "color": INK, "markersize": 5.5, "markerfacecolor": "none"},
        "all rows": {"marker": "|", "color": INK, "markersize": 12, "markeredgewidth": 2},
    }
    said = []
    ends: list[float] = []
    for place, (one, name) in enumerate(zip(contents.plans, names(contents), strict=True)):
        found = one.evaluation
        values = (found.loss_random, found.loss_oracle, found.loss_global)
        axes.plot([values[0], values[2]], [place, place], color=GRID, linewidth=4, zorder=1)
        for value, mark in zip(values, marks.values(), strict=True):
            axes.plot(value, place, linestyle="none", zorder=2, **mark)
        axes.plot(found.loss_train, place, "o", color=PLANS[place], markersize=10, zorder=3)
        axes.annotate(
            f"{name}: {found.loss_train:.3f}", (0, place), (0, 9),
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        said.append(f"{one.name} {found.loss_train:.3f}")
        ends += [*values, found.loss_train]
    margin = 0.04 * (max(ends) - min(ends)) or 0.01
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.set_ylim(count - 0.55, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("loss in nats: harder batches to the right")
    handles = [Line2D([], [], linestyle="none", **mark) for mark in marks.values()]
    legend(figure, handles, list(marks))
    first = contents.plans[0].evaluation
    return Picture(
        "losses",
        "Loss of the batches",
        "The training loss that each plan gives the model as it is now. The oracle, which gives "
        "every row its own hardest negatives, is more than any plan can reach.",
        f"Losses: random batches {first.loss_random:.3f}, {', '.join(said)}, oracle "
        f"{first.loss_oracle:.3f}, all rows {first.loss_global:.3f} nats.",
        figure,
    )
