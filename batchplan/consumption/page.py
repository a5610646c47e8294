"""Writes the HTML page of a verdict, with a picture of the steps of each rank."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from batchplan.consumption.epochs import DIFFERS, EXACT, MISSING, Epoch
from batchplan.consumption.verifying import Verdict, batch_text
from batchplan.files.atomic import write_files
from batchplan.report.figures.common import Picture, legend, new_figure
from batchplan.report.html import shown, to_html
from batchplan.report.palette import COLOURS
from batchplan.report.render import style

_COLOURS = {EXACT: COLOURS["plan-1"], DIFFERS: COLOURS["plan-2"], MISSING: COLOURS["random"]}
_NAMES = {EXACT: "exact", DIFFERS: "differs", MISSING: "missing"}
_COLUMNS = 160  # of a picture, at most; a column of several steps shows the worst step
_EPOCHS = 12  # pictures, at most


def write_page(verdict: Verdict, path: str | os.PathLike[str]) -> None:
    """Write the page of a verdict. The same verdict gives the same bytes.

    Args:
        verdict: the result of `verify`.
        path: the file to write.

    Raises:
        OutputError: writing failed. An existing file is then unchanged.
    """
    with style():
        text = page(verdict)
    write_files({Path(path): text.encode()})


def page(verdict: Verdict) -> str:
    """Return the HTML of the page, which loads nothing and runs no script. Call it in `style`."""
    first = verdict.first
    chosen = sorted(verdict.epochs, key=lambda epoch: epoch.exact)[:_EPOCHS]  # the wrong first
    epochs = sorted(chosen, key=lambda epoch: epoch.number)
    return to_html(
        (files(__package__) / "page.html").read_text("utf-8"),
        title=f"What training saw is {'' if verdict.exact else 'not '}what was planned",
        headline=verdict.headline,
        causes=[(cause, verdict.detail(cause), verdict.where(cause)) for cause in verdict.findings],
        first=first,
        expected=batch_text(first.expected) if first else "",
        seen=batch_text(first.seen) if first else "",
        pictures=[shown(picture) for picture in map(picture_of, epochs)],
        more=len(verdict.epochs) - len(epochs),
    )


def picture_of(epoch: Epoch) -> Picture:
    """Draw an epoch: steps from left to right, ranks from top to bottom."""
    ranks, steps = epoch.grid.shape
    edges = np.linspace(0, steps, min(steps, _COLUMNS) + 1).astype(int)
    worst = np.maximum.reduceat(epoch.grid, edges[:-1], axis=1) if steps else epoch.grid
    figure, axes = new_figure(110 + 14 * min(ranks, 40))
    for rank, statuses in enumerate(worst):
        changes = np.flatnonzero(np.diff(statuses, prepend=-1))
        for start, stop in zip(changes, [*changes[1:], len(statuses)], strict=True):
            place = epoch.first + edges[start]
            axes.barh(
                rank, edges[stop] - edges[start], left=place, height=0.8,
                color=_COLOURS[int(statuses[start])],
            )  # fmt: skip
    axes.grid(False)
    axes.set(xlabel="step", ylabel="rank", ylim=(ranks - 0.4, -0.6))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    counts = {name: int((epoch.grid == status).sum()) for status, name in _NAMES.items()}
    labels = [f"{name} ({count:,})" for name, count in counts.items()]
    legend(figure, [Patch(color=colour) for colour in _COLOURS.values()], labels)
    merged = " A column is several steps, and shows the worst." * (steps > _COLUMNS)
    return Picture(
        f"epoch-{epoch.number}",
        f"Epoch {epoch.number}",
        f"Whether each step of each rank saw the rows that the plan gives it.{merged}",
        f"Epoch {epoch.number}, {ranks} ranks: {', '.join(labels)} steps.",
        figure,
    )
