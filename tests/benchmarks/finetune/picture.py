"""``python -m tests.benchmarks.finetune.picture finetune.svg gloss code``: scores against time, a
panel for each of these domains, from the results in this folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from batchplan.report.palette import INK, MUTED, PLANS, STYLE
from batchplan.report.render import to_svg
from tests.benchmarks.finetune import table
from tests.benchmarks.finetune.lines import LINES
from tests.benchmarks.finetune.table import Run, domains_of, epoch_time, final, runs, time

OURS = "planned"  # lines whose name starts so
SHOWN = "shuffled", *table.SHOWN[2]
GAP = 0.072  # between labels, in heights of a panel


def main() -> None:
    with matplotlib.rc_context(STYLE):
        file, *domains = sys.argv[1:]
        found = [run for run in runs() if run["domain"] in domains]
        Path(file).write_bytes(to_svg(drawn(found)))


def drawn(found: list[Run], epochs: int = 2, model: str = "minilm") -> Figure:
    """The mean nDCG@10 of each line after some epochs, with the range of the seeds, by its least
    time over that of an epoch of shuffled batches."""
    domains = domains_of(found)
    # room on the right, as a browser may have a wider font
    layout = ConstrainedLayoutEngine(rect=(0, 0, 0.98, 1))
    size = (400 / 72, 215 * len(domains) / 72)  # one panel below the other, for narrow windows
    figure = Figure(figsize=size, layout=layout)
    panels = figure.subplots(len(domains), squeeze=False)[:, 0]
    for axes, domain in zip(panels, domains, strict=True):
        epoch = epoch_time(final(found, domain, "shuffled", epochs, model))
        ends: list[tuple[float, float, str, str]] = []
        for name in SHOWN:
            if not (own := final(found, domain, name, epochs, model)):
                continue
            ours = name.startswith(OURS)
            colour = PLANS[0] if ours else INK if name == "shuffled" else MUTED
            scores = [run["test"][-1]["ndcg@10"] for run in own]
            x, y = time(own) / epoch, float(np.mean(scores))
            axes.errorbar(x, y, [[y - min(scores)], [max(scores) - y]], fmt="o", color=colour,
                          linewidth=1, markersize=5 if ours else 4)  # fmt: skip
            ends.append((y, x, re.sub("[*`]", "", LINES[name].text), colour))
        _label(axes, ends)
        axes.set_title(domain)
        axes.set_ylabel("nDCG@10")
    axes.set_xlabel("time, in epochs of shuffled batches")
    return figure


def _label(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write the name of each line to the right of the panel, as near to its end as other names
    allow."""
    ends = sorted(ends)
    low, high = axes.get_ylim()
    gap = GAP * (high - low)
    heights = [end[0] for end in ends]
    for place in range(1, len(ends)):
        heights[place] = max(heights[place], heights[place - 1] + gap)
    top = high + gap
    for place in reversed(range(len(ends))):
        top = heights[place] = min(heights[place], top - gap)
    for (y, x, text, colour), height in zip(ends, heights, strict=True):
        axes.annotate(
            text, (x, y), (1.04, height), textcoords=("axes fraction", "data"), va="center",
            fontsize=10.5, color=colour, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.4, "shrinkB": 4,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


if __name__ == "__main__":
    main()
