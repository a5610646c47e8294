"""The fenced blocks of a Markdown page."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "sample_data" / "README.md",
    ROOT / "skills" / "batchplan" / "SKILL.md",
    *sorted((ROOT / "docs").glob("*.md")),
]

_FENCE = re.compile(
    r"^```(\S*)(?: (near|trained|frameworks))?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its mark, its text and the line it begins at.

    The mark says what its figures are like on other processors (a key of TOLERANCES in shown.py, or
    nothing: the same), or ``frameworks``: tests/frameworks runs it.
    """

    language: str
    like: str
    text: str
    line: int

    def commands(self) -> list[tuple[str, str]]:
        """The commands of a sh or console block, each with the output shown below it."""
        if self.language == "sh":
            return [(line, "") for line in self.text.splitlines() if line.strip()]
        found: list[tuple[str, str]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], ""))
            else:
                command, shown = found[-1]  # output without a command is a mistake of the page
                found[-1] = (command, f"{shown}{line}\n")
        return found


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(match[1], match[2] or "", match[3], text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
    ]


def blocks_under(page: Path, heading: str) -> list[Block]:
    """The fenced blocks under a heading of the second level, in order."""
    lines = page.read_text().splitlines()
    first = lines.index(f"## {heading}") + 1
    later = (number for number, line in enumerate(lines[first:], first + 1) if line[:3] == "## ")
    last = next(later, len(lines) + 1)
    return [block for block in blocks_of(page) if first < block.line < last]


def add_module(name, source, folder, monkeypatch):
    """Put a page's file where an author would: while a test runs it is imported as ``name``."""
    home, _, stem = name.rpartition(".")
    package = importlib.import_module(home)
    (folder / f"{stem}.py").write_text(source)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.setitem(sys.modules, name, None)  # which is undone, so that it is forgotten
    del sys.modules[name]
    importlib.invalidate_caches()
