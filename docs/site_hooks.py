"""Hooks of MkDocs: the pages that are not in docs/, and links that work in the repository."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import batchplan
import batchplan.training

ROOT = Path(__file__).parents[1]
#: By their paths in the repository, the pages of the site that are outside of docs/.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "sample_data/README.md": "sample_data.md",
}
#: The classes for each framework, which only their own modules have.
FRAMEWORKS = [
    "sentence_transformers.PlannedEpochs",
    "transformers.PlannedEpochs",
    "transformers.PlannedBatches",
    "accelerate.PlannedLoader",
    "lightning.PlannedData",
]
_API = "api.md"
_HOME = {page: source for source, page in OUTSIDE.items()}


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages outside of docs/, and the reference of the Python API."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, _API, content=_api()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Change links to those of the site, and leave out the marks that the tests put on fences."""
    uri = page.file.src_uri
    folder = posixpath.dirname(_HOME.get(uri, f"docs/{uri}"))

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[1] + OUTSIDE.get(target, target.removeprefix("docs/"))

    markdown = re.sub(r"^```(\w+) \w+$", r"```\1", markdown, flags=re.MULTILINE)
    return re.sub(r"(\]\(|src=\")(?!https?:)([^)#\"\s]+)", link, markdown)


def _api() -> str:
    """A heading for each package, and its public names below it."""
    lines = ["# Python API"]
    for package, more in ((batchplan, []), (batchplan.training, FRAMEWORKS)):
        names = [name for name in package.__all__ if not name.startswith("_")]
        names.sort(key=lambda name: _rank(getattr(package, name)))
        lines += [f"## {package.__name__}"]
        lines += [f"::: {package.__name__}.{name}" for name in [*names, *more]]
    return "\n\n".join(lines)


def _rank(named: object) -> int:
    """Functions come first, errors last."""
    return 0 if not isinstance(named, type) else 1 + issubclass(named, Exception)
