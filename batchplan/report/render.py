"""Renders pictures as SVG and as PNG."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from batchplan.report.palette import STYLE

_DOTS = 200  # per inch of a PNG; 72 are the pixels of the page


@contextmanager
def style() -> Iterator[None]:
    """Use the matplotlib settings of a report in the body, whatever those of the caller are."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has more fonts
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def to_svg(figure: Figure) -> bytes:
    """Return an SVG file; the same figure gives the same bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return stream.getvalue()


def to_png(figure: Figure) -> bytes:
    """Return a PNG file, whose palette of 256 colours saves two thirds of the size."""
    drawn, reduced = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DOTS)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256).save(reduced, "PNG", optimize=True)
    return reduced.getvalue()
