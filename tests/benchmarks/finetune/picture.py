"""``python -m tests.benchmarks.finetune.picture finetune.svg``: scores against time, a panel a
domain, from the results in this folder."""

from __future__ import annotations

import sys

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from batchplan.report.palette import INK, MUTED, PLANS, STYLE
from tests.benchmarks.finetune.lines import LINES
from tests.benchmarks.finetune.table import Run, domains_of, final, runs, time

OURS = "planned"  # lines whose name starts so


def main() -> None:
    with matplotlib.rc_context(STYLE):  # a date would change the file with every run
        drawn(runs()).savefig(sys.argv[1], metadata={"Date": None})


def drawn(found: list[Run], model: str = "minilm") -> Figure:
    """The mean nDCG@10 of each line at its end, with the range of the seeds, by its least time over
    that of an epoch of shuffled batches."""
    domains = domains_of(found)
    figure = Figure(figsize=(820 / 72, 300 / 72), layout="constrained")
    for axes, domain in zip(
        figure.subplots(1, len(domains), squeeze=False)[0], domains, strict=True
    ):
        epoch = time(final(found, domain, "shuffled"))
        epochs = sorted({run["epochs"] for run in found if run["domain"] == domain})
        for name, line in LINES.items():
            points = [final(found, domain, name, count, model) for count in epochs]
            points = [own for own in points if own and line.trained]
            if not points:
                continue
            ours = name.startswith(OURS)
            colour = PLANS[0] if ours else INK if name == "shuffled" else MUTED
            x = [time(own) / epoch for own in points]
            ends = [[run["test"][-1]["ndcg@10"] for run in own] for own in points]
            y, low, high = (
                np.array([way(scores) for scores in ends]) for way in (np.mean, np.min, np.max)
            )
            axes.errorbar(x, y, [y - low, high - y], fmt="o-", color=colour, linewidth=1,
                          markersize=5 if ours else 4)  # fmt: skip
            text = line.text.replace("`", "")
            left = line.plan.get("random_epochs")  # ends before the line it would overlap
            axes.annotate(text, (x[-1], y[-1]), (-5 if left else 5, 3), color=colour, fontsize=8.5,
                          ha="right" if left else "left", textcoords="offset points")  # fmt: skip
        axes.set_title(domain)
        axes.set_xlabel("time, in epochs of shuffled batches")
        axes.margins(x=0.55, y=0.15)
    figure.axes[0].set_ylabel("nDCG@10 of held-out pairs")
    return figure


if __name__ == "__main__":
    main()
