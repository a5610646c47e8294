"""docs/cli.md says what --help says."""

from __future__ import annotations

import re

import pytest
import typer

from .blocks import ROOT
from .cli_reference import PAGE, command_names, groups_of, help_of, records_of, reference

TEXT = PAGE.read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
TYPES = {"INTEGER": "<int>", "FLOAT": "<float>", "TEXT": "<str>"}  # before and since typer 0.29


def without_blanks(text: str) -> str:
    """Lines may break at hyphens and blanks."""
    return "".join(text.split())


def with_types_as_told(option: str) -> str:
    """An option as the page spells it, whichever typer spelled it. Arguments, which are all of
    texts, have no type: typer before 0.29 shows none."""
    spelled, _, kind = option.rpartition(" ")
    kind = TYPES.get(kind, re.sub(r"^\[(.*)\]$", r"<\1>", kind))
    return without_types_of_arguments(f"{spelled} {kind}")


def without_types_of_arguments(text: str) -> str:
    return re.sub(r"^([A-Z. ]+) <(?:str|list\[str\])>", r"\1", text, flags=re.MULTILINE)


def told_of(name: str) -> str:
    """What the page says of a command: in its section, and in those that it links to."""
    section = SECTIONS[f"batchplan {name}"]
    links = {link.lower() for link in re.findall(r"\[([^]]+)\]\(#", section)}
    assert links == {group.title.lower() for group in groups_of(name)}
    shared = (text for title, text in SECTIONS.items() if title.lower() in links)
    return "\n".join([section, *shared])


def test_reference_is_what_help_prints():
    pinned = re.search(r"^typer==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    if typer.__version__ != pinned:
        pytest.skip(f"the layout is that of typer {pinned}, this is {typer.__version__}")
    assert reference() == TEXT, "docs/cli.md is stale: run `make docs`"


def test_reference_has_every_command():
    named = [title.removeprefix("batchplan ") for title in SECTIONS if "batchplan " in title]
    assert named == command_names()


@pytest.mark.parametrize("name", command_names())
def test_reference_tells_every_option_as_help_does(name):
    told = without_blanks(without_types_of_arguments(told_of(name)))
    printed = without_blanks(help_of(name))
    assert set(OPTION.findall(help_of(name))) <= set(OPTION.findall(told_of(name)))
    for option, help_text in records_of(name).values():
        assert without_blanks(f"{option}{help_text}") in printed
        record = without_blanks(f"{with_types_as_told(option)}{help_text}")
        assert record in told, f"batchplan {name}: {option}"


@pytest.mark.parametrize("name", command_names())
def test_reference_tells_of_no_option_that_a_command_lacks(name):
    excepted = re.findall(r"\(all but (.*?)\)", SECTIONS[f"batchplan {name}"])
    lacking = {one.strip("` ") for part in excepted for one in part.split(",")}
    own = records_of(name).values()
    for group in groups_of(name):
        listed = re.findall(r"^(-.*?)(?:  |$)", SECTIONS[group.title], re.MULTILINE)
        assert listed
        spelled = {flag for one in listed for flag in OPTION.findall(one)}
        had = {flag for option, _ in own for flag in OPTION.findall(option)}
        assert spelled - had <= lacking, f"batchplan {name}"
