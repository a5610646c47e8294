"""The picture of the law: what plans gain, by the number of pairs and the batch size."""

from __future__ import annotations

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from batchplan.report.palette import DASHES, MUTED, PLANS, STYLE
from batchplan.report.render import to_svg
from tests.benchmarks.law.table import DATA, USUAL, Grid

TICKS = 5_000, 50_000, 500_000
COLUMNS = 2
PANEL = 195, 150  # px; two panels side by side can be read on a phone


def draw(grid: Grid) -> bytes:
    """An SVG: a panel for each data set, with a line for each batch size and 95% intervals."""
    with matplotlib.rc_context(STYLE):
        return to_svg(drawn(grid))


def drawn(grid: Grid) -> Figure:
    """The figure of `draw`."""
    layout = ConstrainedLayoutEngine(rect=(0, 0, 0.98, 1))
    sizes = grid.values("batch_size", line="planned", **USUAL)
    shown = [data for data in DATA if grid.values("rows", data=data, line="planned", **USUAL)]
    rows, (width, height) = -(-len(shown) // COLUMNS), PANEL
    figure = Figure(figsize=(COLUMNS * width / 72, rows * height / 72), layout=layout)
    panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for data, axes in zip(shown, panels.flat, strict=False):
        axes.axhline(0, color=MUTED, linewidth=1)
        for number, size in enumerate(sizes):
            points = []
            for count in grid.values("rows", data=data, batch_size=size, line="planned", **USUAL):
                place = {"data": data, "rows": count, "batch_size": size, **USUAL}
                if (gain := grid.gain(place, "planned", "shuffled")) is not None:
                    points.append((count, gain[0], gain[1] if gain[2] > 1 else 0.0))
            if points:
                at, means, halves = zip(*points, strict=True)
                axes.errorbar(
                    [one * 1.04**number for one in at], means, halves, marker="o", markersize=4,
                    color=PLANS[number], linestyle=DASHES[number], capsize=2, elinewidth=1,
                    label=f"B = {size:,}",
                )  # fmt: skip
        axes.set_title(data)
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(TICKS, [f"{tick:,}" for tick in TICKS])
        axes.set_xlim(0.8 * TICKS[0], 1.25 * TICKS[-1])
    for axes in panels[:, 0]:
        axes.set_ylabel("gain in nDCG@10")
    for axes in panels[-1]:
        axes.set_xlabel("pairs")
    shown_lines = [axes.get_legend_handles_labels() for axes in panels.flat]
    labelled = {label: line for own in shown_lines for line, label in zip(*own, strict=True)}
    names = [name for size in sizes if (name := f"B = {size:,}") in labelled]
    figure.legend([labelled[name] for name in names], names, loc="outside lower center",
                  ncols=len(names), columnspacing=1, handlelength=1.6)  # fmt: skip
    return figure
