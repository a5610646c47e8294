"""Shows results in notebooks as HTML, and turns them into data frames of pandas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from batchplan.extras import missing_told
from batchplan.text import one_line

_LEFT = "style='text-align:left'"


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


def _head(text: str) -> str:
    return f"<th {_LEFT}>{_safe(text)}</th>"


def _safe(text: str) -> str:
    return escape(one_line(text))
