"""docs/cli.md says what --help says."""

import re

import pytest
import typer

from .blocks import ROOT
from .cli_reference import PAGE, command_names, reference


def test_reference_is_what_help_prints():
    pinned = re.search(r"^typer==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    if typer.__version__ != pinned:
        pytest.skip(f"the layout is that of typer {pinned}, this is {typer.__version__}")
    assert reference() == PAGE.read_text(), "docs/cli.md is stale: run `make docs`"


def test_reference_has_every_command():
    named = re.findall(r"^## batchplan (.*)$", PAGE.read_text(), re.MULTILINE)
    assert named == command_names()
