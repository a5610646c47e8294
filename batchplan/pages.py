"""Addresses of the pages of the documentation, which messages name."""

import re
from functools import cache

_PAGE = re.compile(r"docs/(\w+)\.md(#[\w-]+)?")


def linked(text: str) -> str:
    """Return a text with the address of each page that it names as ``docs/PAGE.md``.

    Only a clone has these files. The addresses are of the release: pyproject.toml names the
    documentation in ``project.urls``. A package without it keeps the names.
    """
    if "docs/" not in text or not (site := _site()):
        return text
    return _PAGE.sub(lambda page: f"{site}/{page[1]}.html{page[2] or ''}", text)


@cache
def _site() -> str:
    """Return the address of the documentation, without a slash at the end; "" if it has none."""
    from importlib.metadata import PackageNotFoundError, metadata  # on use: it takes long to load

    try:
        urls = metadata("batchplanner").get_all("Project-URL") or []
    except PackageNotFoundError:  # in a tree that is not installed
        return ""
    named: dict[str, str] = dict(url.split(", ", 1) for url in urls)
    return named.get("Documentation", "").rstrip("/")
