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
    kind = TYPES.get(kind, re.sub(r"^\[([^A-Z]*)\]$", r"<\1>", kind))
    return without_types_of_arguments(f"{spelled} {kind}")


def without_types_of_arguments(text: str) -> str:
    return re.sub(r"^([A-Z. ]+) <(?:str|list\[str\])>", r"\1", text, flags=re.MULTILINE)


def linked(section: str) -> dict[str, list[str]]:
    """The sections that a section links to, and the options it takes from each: none for all."""
    parts = re.search(r"^Shared: (.*?)\.(?: (?:Other defaults|Without): |$)", section, re.MULTILINE)
    found = {}
    for part in parts[1].split(", "):
        options, link = re.fullmatch(r"(?:(.*) of )?\[([^]]+)\]\(#\2\)", part).groups()
        (title,) = (title for title in SECTIONS if title.lower() == link)
        found[title] = re.findall(r"`([^`]+)`", options or "")
    return found


def other_defaults(section: str) -> dict[str, str]:
    """The defaults that differ from those of the shared options."""
    said = re.search(r"Other defaults: (.*?)\.(?: Without: |$)", section, re.MULTILINE)
    return dict(re.findall(r"`([^`]+)` ([^;]+)", said[1])) if said else {}


def entries(section: str) -> list[str]:
    """The options and arguments of a section, each with its help, without blanks."""
    block = re.search(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    starts = re.split(r"^ {0,2}(?=[-A-Z])", block, flags=re.MULTILINE)
    return [without_blanks(without_types_of_arguments(one)) for one in starts]


def without_default(entry: str) -> tuple[str, str | None]:
    """An entry without its default, and the default."""
    default = re.search(r"\[default:([^]]*)\]", entry)
    return re.sub(r"\[default:[^]]*\]", "", entry), default and default[1]


def told_of(name: str, option: str) -> list[tuple[str, str | None]]:
    """What the page says of an option of a command: in the command's section or else, with the
    default that the command has, in those that it links to."""
    section, flag = SECTIONS[f"batchplan {name}"], without_blanks(option)
    own = [without_default(one) for one in entries(section) if one.startswith(flag)]
    if own:
        return own
    names = set(re.findall(r"--[a-z][a-z-]*", option) or option.split()[:1])
    titles = [title for title, only in linked(section).items() if not only or names & set(only)]
    shared = [one for title in titles for one in entries(SECTIONS[title]) if one.startswith(flag)]
    told = [without_default(one) for one in shared]
    for one in names & set(other_defaults(section)):
        default = without_blanks(other_defaults(section)[one])
        told = [(bare, default) for bare, _ in told]
        if default == "optional":
            told = [(bare.replace("[required]", ""), None) for bare, _ in told]
    return told


def test_reference_is_what_help_prints():
    pinned = re.search(r"^typer==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    if typer.__version__ != pinned:
        pytest.skip(f"the layout is that of typer {pinned}, this is {typer.__version__}")
    assert reference() == TEXT, "docs/cli.md is stale: run `make docs`"


def test_reference_has_every_command():
    named = [title.removeprefix("batchplan ") for title in SECTIONS if "batchplan " in title]
    assert named == command_names()


@pytest.mark.parametrize("name", command_names())
def test_reference_links_to_the_groups_of_a_command(name):
    shared = linked(SECTIONS[f"batchplan {name}"])
    whole = {title for title, only in shared.items() if not only}
    assert whole == {group.title for group in groups_of(name)}


@pytest.mark.parametrize("name", command_names())
def test_reference_tells_every_option_as_help_does(name):
    printed = without_blanks(help_of(name))
    own = {flag for option, _ in records_of(name).values() for flag in OPTION.findall(option)}
    mentioned = set(OPTION.findall(help_of(name)))
    assert own <= mentioned <= set(OPTION.findall(TEXT))
    for option, help_text in records_of(name).values():
        assert without_blanks(f"{option}{help_text}") in printed
        spelled = with_types_as_told(option)
        record = without_blanks(f"{spelled}{help_text}")
        assert without_default(record) in told_of(name, spelled), f"batchplan {name}: {option}"


@pytest.mark.parametrize("name", command_names())
def test_reference_tells_of_no_option_that_a_command_lacks(name):
    section = SECTIONS[f"batchplan {name}"]
    excepted = re.search(r"Without: (.*?)\.$", section, re.MULTILINE)
    lacking = set(re.findall(r"`([^`]+)`", excepted[1])) if excepted else set()
    own = records_of(name).values()
    had = {flag for option, _ in own for flag in re.findall(r"--[a-z][a-z-]*", option)}
    for group in groups_of(name):
        listed = re.findall(r"^(-.*?)(?:  |$)", SECTIONS[group.title], re.MULTILINE)
        assert listed or group.title == "Lists"
        spelled = {flag for one in listed for flag in re.findall(r"--[a-z][a-z-]*", one)}
        assert {flag for flag in spelled - had if not flag.startswith("--no-")} <= lacking, name
    assert not lacking & had
