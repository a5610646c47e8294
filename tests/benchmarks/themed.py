"""Saves pictures of the documentation in the reader's colour scheme, light or dark."""

from __future__ import annotations

import io
import re
from os import PathLike
from pathlib import Path

from matplotlib.figure import Figure

from batchplan.report.palette import COLOURS

# The palette in a dark scheme, lighter for a contrast of 3 to 1.
DARK = {
    "page": "#12161b",
    "ink": "#e8ecf1",
    "muted": "#a3adb8",
    "grid": "#343c46",
    "card": "#1b2028",
    "random": "#8b95a1",
    "plan-1": "#4aa8e0",
    "plan-2": "#f08a3c",
    "plan-3": "#33b98c",
    "plan-4": "#e08cbd",
    "plan-5": "#e2b93b",
    "plan-6": "#8fd0f5",
}
_NAMES = {colour: name for name, colour in COLOURS.items()}
_COLOUR = re.compile("|".join(_NAMES))
_START = '<style type="text/css">'


def save(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a figure as an SVG file; the same figure gives the same bytes."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    Path(path).write_text(themed(stream.getvalue()))


def themed(svg: str) -> str:
    """The picture with variables for the colours of the palette, which follow the scheme."""
    svg = _COLOUR.sub(lambda match: f"var(--{_NAMES[match[0]]})", svg)
    names = [name for name in COLOURS if f"var(--{name})" in svg]
    light, dark = (
        ";".join(f"--{name}:{colours[name]}" for name in names) for colours in (COLOURS, DARK)
    )
    rules = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return svg.replace(_START, _START + rules, 1)
