"""docs/cli.md says what --help says."""

from __future__ import annotations

import re

import pytest
import typer

from .blocks import ROOT
from .cli_reference import PAGE, command_names, help_of, reference


def test_reference_is_what_help_prints():
    pinned = re.search(r"^typer==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    if typer.__version__ != pinned:
        pytest.skip(f"the layout is that of typer {pinned}, this is {typer.__version__}")
    assert PAGE.read_text() == reference(), "docs/cli.md is stale: run `make docs`"


def test_reference_names_every_command_and_option():
    page = PAGE.read_text()
    sections = dict(re.findall(r"^## batchplan (\S+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert list(sections) == command_names()
    for name, section in sections.items():
        options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_of(name)))
        assert options
        missing = {one for one in options if not re.search(rf"(?<![\w-]){one}(?![\w-])", section)}
        assert not missing, f"batchplan {name}"
