"""Shows results in notebooks as HTML, and turns them into data frames of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from batchplan.extras import missing_told
from batchplan.text import one_line

_LEFT = "style='text-align:left'"
_NAMES, _BARS, _LINE = 190, 120, 18  # widths of names and bars, and the height of a line, in pixels


def table(lines: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """An HTML table. All texts are escaped.

    Args:
        lines: cells; the first of each line names it.
        heads: the names of the columns; none for a table without a head.
    """
    head = f"<tr>{''.join(map(_head, heads))}</tr>" if heads else ""
    rows = (
        f"<tr>{_head(name)}{''.join(f'<td {_LEFT}>{_safe(cell)}</td>' for cell in cells)}</tr>"
        for name, *cells in lines
    )
    return f"<table>{head}{''.join(rows)}</table>"


def bars(lines: Iterable[tuple[str, str, float]], title: str) -> str:
    """An SVG picture with a line for each bar. All texts are escaped.

    Args:
        lines: the name, the text after the bar, and the length of the bar from 0 to 1.
        title: describes the picture.
    """
    drawn = [_bar(place * _LINE, *line) for place, line in enumerate(lines)]
    return (
        f"<svg width='{_NAMES + _BARS + 90}' height='{len(drawn) * _LINE}' role='img' "
        f"fill='currentColor' font-size='12'><title>{_safe(title)}</title>{''.join(drawn)}</svg>"
    )


def figures(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a document of JSON values, with their dotted names. Lists, texts and what is
    undefined are left out."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from figures(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", float(value)


def frame(columns: Any) -> Any:
    """A ``pandas.DataFrame`` of columns by their names, or of mappings, one for each row.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    with missing_told():
        pandas = import_module("pandas")
    return pandas.DataFrame(columns)


def _bar(top: int, name: str, text: str, length: float) -> str:
    width = _BARS * min(max(length, 0.0), 1.0)
    return (
        f"<text x='0' y='{top + 13}'>{_safe(name)}</text>"
        f"<rect x='{_NAMES}' y='{top + 4}' width='{width:.1f}' height='10' opacity='.5'/>"
        f"<text x='{_NAMES + width + 4:.1f}' y='{top + 13}'>{_safe(text)}</text>"
    )


def _head(text: str) -> str:
    return f"<th {_LEFT}>{_safe(text)}</th>"


def _safe(text: str) -> str:
    return escape(one_line(text))
