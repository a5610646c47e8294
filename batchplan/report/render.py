"""Renders pictures as SVG, to embed in a page, and as PNG."""

import base64
import io
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from batchplan.report.palette import STYLE, as_variables
from batchplan.text import one_line

_PNG = "data:image/png;base64,"
_DOTS = 200  # per inch of a PNG; 72 are the pixels of the page


@contextmanager
def style() -> Iterator[None]:
    """Use the matplotlib settings of a report in the body, whatever those of the caller are."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has more fonts
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def to_svg(figure: Figure, prefix: str, label: str) -> str:
    """Return an ``<svg>`` element for an HTML page, in the colours of its variables.

    Args:
        figure: to render.
        prefix: of its ids, which must be unique in the page.
        label: the text for screen readers.
    """
    stream = io.StringIO()
    _clean(figure)
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(stream.getvalue())
    for parent in root.iter():
        for child in list(parent):
            if child.tag.endswith("}metadata"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {
            _local(name): _own(_local(name), value, prefix)
            for name, value in element.attrib.items()
        }
    box = root.attrib["viewBox"]
    root.attrib = {"viewBox": box, "role": "img", "aria-label": one_line(label)}
    return ElementTree.tostring(root, encoding="unicode")


def to_png(figure: Figure) -> bytes:
    """Return a PNG file, whose palette of 256 colours saves two thirds of the size."""
    drawn, reduced = io.BytesIO(), io.BytesIO()
    _clean(figure)
    figure.savefig(drawn, format="png", dpi=_DOTS)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256).save(reduced, "PNG", optimize=True)
    return reduced.getvalue()


def _clean(figure: Figure) -> None:
    """Escape characters that a picture cannot show or XML cannot hold."""
    for drawn in figure.findobj(Text):
        text = drawn.get_text()
        if text != one_line(text):
            drawn.set_text(one_line(text))


def _local(name: str) -> str:
    """The name without its namespace, which HTML does not need."""
    return name.rpartition("}")[2]


def _own(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if value.startswith(_PNG):
        return _PNG + _indexed(value.removeprefix(_PNG))
    if name in ("href", "clip-path"):
        return value.replace("#", f"#{prefix}-")
    return as_variables(value) if name == "style" else value


def _indexed(image: str) -> str:
    """Return the same PNG with a colour palette, a quarter of the size; Base64."""
    with Image.open(io.BytesIO(base64.b64decode(image))) as opened:
        pixels = np.asarray(opened.convert("RGB"))
    colours, places = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    if len(colours) > 256:
        return image
    indexed = Image.fromarray(places.reshape(pixels.shape[:2]).astype(np.uint8))
    indexed.putpalette(colours.tobytes())
    stream = io.BytesIO()
    indexed.save(stream, "PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()
