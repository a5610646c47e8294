"""docs/cli.md, made from the commands and their options: ``make docs`` runs this."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from batchplan.cli.app import app
from batchplan.data.reference_options import ReferenceOptions
from batchplan.guard.options import GroupOptions, GuardOptions
from batchplan.options import SimilarityOptions
from batchplan.planners.common.options import PassOptions, PlannerOptions
from batchplan.quality import EvaluationOptions

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
Record = tuple[str, str]  # an option as --help spells it, and its help with its default

_WIDTH = 78
_TOP = """\
# Command line

`make docs` writes this page from `--help`.

Groups of options that commands share come first; all commands have those for \
[running](#running). The section of a command has its own options, its groups, other defaults, \
and the options of these groups that it lacks. `--help` also shows an example.
"""
_DEFAULT = re.compile(r"\s*\[default: ([^]]*)\]")
_REQUIRED = re.compile(r"\s*\[required\]")
_EXAMPLE = re.compile(r"\n\n  Example:(?:\n    .*)+")


@dataclass(frozen=True)
class Group:
    """Options that commands share. Commands with the option ``marker`` have the group; ``options``
    are names of parameters, or dataclasses whose own fields these are. Other commands may have some
    of them, if ``alone``."""

    title: str
    about: str
    marker: str
    options: tuple[type | str, ...]
    alone: bool = True

    @property
    def names(self) -> list[str]:
        """The names of its parameters."""
        return [
            name
            for part in self.options
            for name in ([part] if isinstance(part, str) else part.__annotations__)
        ]

    @property
    def anchor(self) -> str:
        """Its heading as a link's target."""
        return "#" + self.title.lower().replace(" ", "-")


GROUPS = (
    Group(
        "Planning",
        "",
        "tail",
        (PlannerOptions, SimilarityOptions, "output"),
    ),
    Group(
        "Refinement",
        "",
        "refine",
        (PassOptions,),
    ),
    Group(
        "Guard",
        "Which rows must not share a batch: see [guards](guards.md).",
        "guard_penalty",
        (GroupOptions, ReferenceOptions, GuardOptions),
    ),
    Group(
        "Known answers",
        "Rows that never share a batch: see [known answers](guards.md#known-answers).",
        "anchor_id",
        ("anchor_id", "positive_id", "negative_id", "known", "label_table"),
    ),
    Group(
        "Negatives",
        "",
        "as_batches",
        ("as_batches", "output"),
    ),
    Group(
        "Measuring",
        "",
        "random_trials",
        (EvaluationOptions, "group_column"),
        alone=False,
    ),
    Group(
        "Reading",
        "",
        "pair",
        (
            "embeddings",
            "pair",
            "negatives",
            "x_column",
            "y_column",
            "id_column",
            "single",
            "shard_order",
        ),
    ),
    Group(
        "Lists",
        "Mined lists instead of vectors: see [candidates](rows.md#candidates-instead-of-vectors).",
        "candidates",
        ("candidates",),
    ),
    Group(
        "Plan",
        "",
        "plan",
        ("plan", "batch_size"),
    ),
    Group(
        "Running",
        "",
        "help",
        ("seed", "memory", "device", "force", "json", "quiet", "verbose", "help"),
    ),
)


@cache
def _application() -> Any:
    return get_command(app)


def command_names() -> list[str]:
    """The commands, in the order of ``batchplan --help``."""
    return list(_application().commands)


def _context(name: str) -> Any:
    group = _application()
    parent = typer.Context(group, info_name="batchplan")
    return typer.Context(group.commands[name], parent=parent, info_name=name, terminal_width=_WIDTH)


@cache
def records_of(name: str) -> dict[str, Record]:
    """The arguments and options of a command, by the names of their parameters."""
    context = _context(name)
    records = {
        one.name: one.get_help_record(context) for one in context.command.get_params(context)
    }
    return {name: record for name, record in records.items() if record is not None}


def groups_of(name: str) -> list[Group]:
    """The groups whose options a command has."""
    records = records_of(name)
    return [group for group in GROUPS if group.marker in records]


@cache
def usual_records(group: Group) -> dict[str, Record]:
    """The options of a group as most of its commands have them."""
    commands = [records_of(name) for name in command_names()]
    having = [records for records in commands if group.marker in records]
    return {
        name: Counter(records[name] for records in having if name in records).most_common(1)[0][0]
        for name in group.names
    }


def _listed(records: Iterable[Record], formatter: Any) -> None:
    if rows := list(records):
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_dl(rows)


def _block(formatter: Any) -> str:
    lines = (line.rstrip() for line in formatter.getvalue().strip("\n").splitlines())
    return "```text\n" + "\n".join(lines) + "\n```\n"


def _group_section(group: Group) -> str:
    formatter = _context("inspect").make_formatter()
    formatter.write_dl(list(usual_records(group).values()))
    about = f"{group.about}\n\n" if group.about else ""
    return f"## {group.title}\n\n{about}{_block(formatter)}"


def split_default(record: Record) -> tuple[Record, str | None, bool]:
    """A record without its default, the default, and whether the option is required."""
    option, text = record
    default = _DEFAULT.search(text)
    plain = _REQUIRED.sub("", _DEFAULT.sub("", text))
    return (option, plain), default and default[1], bool(_REQUIRED.search(text))


def _flag(option: str) -> str:
    """The long name of an option, or the name of an argument, as code."""
    names = re.findall(r"(?<![\w-])--[a-z][a-z-]*", option) or option.split()
    return f"`{names[0]}`"


def same_but_default(record: Record, usual: Record) -> bool:
    """Whether two records have the same option and help, whatever their defaults."""
    return split_default(record)[0] == split_default(usual)[0]


def _command_section(name: str) -> str:
    context, records, groups = _context(name), records_of(name), groups_of(name)
    own, links, differences = dict(records), [], []
    for group in [*groups, *(one for one in GROUPS if one.alone and one not in groups)]:
        named = []
        for one, usual in usual_records(group).items():
            if one in own and same_but_default(own[one], usual):
                named.append(_flag(usual[0]))
                differences += _differences(own.pop(one), usual)
        link = f"[{group.title.lower()}]({group.anchor})"
        if group in groups:
            links += [link] * (group.marker != "help")  # which every command has
        elif named:
            links.append(" and ".join(named) + f" of {link}")
    without = [
        _flag(usual[0])
        for group in groups
        for one, usual in usual_records(group).items()
        if one not in records
    ]
    formatter = context.make_formatter()
    context.command.format_help_text(context, formatter)
    arguments = {one.name for one in context.command.params if one.param_type_name != "option"}
    _listed((own[one] for one in sorted(own, key=lambda one: one not in arguments)), formatter)
    shared = {"Shared": ", ".join(links), "Other defaults": "; ".join(differences)}
    shared["Without"] = ", ".join(without)
    line = " ".join(f"{title}: {names}." for title, names in shared.items() if names)
    text = _EXAMPLE.sub("", _block(formatter))
    return f"## batchplan {name}\n\n{text}\n{line}\n"


def _differences(record: Record, usual: Record) -> list[str]:
    """The default of an option, if it is not the shared one."""
    (_, default, required), (_, other, needed) = split_default(record), split_default(usual)
    if (default, required) == (other, needed):
        return []
    instead = default or ("optional" if needed else "none")
    return [f"{_flag(record[0])} {instead}"]


def _about() -> str:
    """What ``batchplan --help`` says before the commands, which are the headings of the page."""
    context = typer.Context(_application(), info_name="batchplan", terminal_width=_WIDTH)
    formatter = context.make_formatter()
    context.command.format_help_text(context, formatter)
    own = (one.get_help_record(context) for one in context.command.get_params(context))
    _listed([record for record in own if record], formatter)
    return _block(formatter)


def reference() -> str:
    """The whole page."""
    sections = [_group_section(group) for group in GROUPS]
    sections += [_command_section(name) for name in command_names()]
    return "\n".join([_TOP, _about(), *sections])


if __name__ == "__main__":
    PAGE.write_text(reference())
