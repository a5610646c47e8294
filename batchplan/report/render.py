"""Renders pictures as SVG and as PNG."""

import base64
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from batchplan.report.palette import COLOURS, DARK, STYLE

_IMAGE = re.compile(rb"(?<=data:image/png;base64,)[^\"]+")  # in an SVG file
_START = '<style type="text/css">'
_NAMES = {colour: name for name, colour in COLOURS.items()}
_COLOUR = re.compile("|".join(_NAMES))
_DOTS = 200  # per inch of a PNG; 72 are the pixels of the page


@contextmanager
def style() -> Iterator[None]:
    """Use the matplotlib settings of a report in the body, whatever the caller has set."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has more fonts
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def to_svg(figure: Figure) -> bytes:
    """Return an SVG file in the reader's colour scheme, light or dark; the same figure gives the
    same bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return _IMAGE.sub(
        lambda found: base64.b64encode(_reduced(base64.b64decode(found[0]))),
        _themed(stream.getvalue().decode()).encode(),
    )


def scheme(names: Iterable[str] = tuple(COLOURS)) -> str:
    """Return CSS variables for colours of the palette, which follow the reader's scheme."""
    light, dark = (
        ";".join(f"--{name}:{colours[name]}" for name in names) for colours in (COLOURS, DARK)
    )
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _themed(svg: str) -> str:
    """The picture with variables for the colours of the palette."""
    svg = _COLOUR.sub(lambda match: f"var(--{_NAMES[match[0]]})", svg)
    names = [name for name in COLOURS if f"var(--{name})" in svg]
    return svg.replace(_START, _START + scheme(names), 1)


def to_png(figure: Figure) -> bytes:
    """Return a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=_DOTS)
    return _reduced(stream.getvalue())


def _reduced(png: bytes) -> bytes:
    """Return a PNG file with a palette of 256 colours, which saves two thirds of the size."""
    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(256).save(stream, "PNG", optimize=True)
    return stream.getvalue()
