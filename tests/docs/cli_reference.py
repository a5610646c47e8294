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
from typer.testing import CliRunner

from batchplan.cli.app import app
from batchplan.cli.options import Labelling
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

`make docs` generates this page from `--help`; edit the help, not the page.

Options that several commands share come first. A command's own section lists the rest, and any \
shared option whose default or meaning differs there.
"""


@dataclass(frozen=True)
class Group:
    """Options that commands share. Commands with the option ``marker`` have the group; ``options``
    are names of parameters, or dataclasses whose own fields these are."""

    title: str
    about: str
    marker: str
    options: tuple[type | str, ...]

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
        "How to cut batches, and what to write.",
        "tail",
        (PlannerOptions, SimilarityOptions, "output"),
    ),
    Group(
        "Refinement",
        "Planners whose batches can be improved afterwards.",
        "refine",
        (PassOptions,),
    ),
    Group(
        "Negatives",
        "Planners that choose negatives for each row.",
        "as_batches",
        ("as_batches", "output", "group_column", "label_table"),
    ),
    Group(
        "Guard",
        "Which rows must not share a batch: see [guards](guards.md).",
        "guard",
        (GroupOptions, ReferenceOptions, GuardOptions),
    ),
    Group(
        "Measuring",
        "What to measure plans with.",
        "random_trials",
        (EvaluationOptions, Labelling),
    ),
    Group(
        "Reading",
        "Where the embeddings are.",
        "pair",
        ("embeddings", "pair", "x_column", "y_column", "id_column", "single", "cast"),
    ),
    Group(
        "Plan",
        "A plan that a command reads.",
        "plan",
        ("plan", "batch_size"),
    ),
    Group(
        "Running",
        "Most commands have these.",
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


def help_of(*arguments: str) -> str:
    """What ``batchplan ARGUMENTS --help`` prints on a terminal 80 columns wide."""
    runner = CliRunner(env={"COLUMNS": "80"})
    result = runner.invoke(app, [*arguments, "--help"], prog_name="batchplan")
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.stdout.strip("\n").splitlines())


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


def _listed(title: str, records: Iterable[Record], formatter: Any) -> None:
    if rows := list(records):
        with formatter.section(title):
            formatter.write_dl(rows)


def _block(formatter: Any) -> str:
    lines = (line.rstrip() for line in formatter.getvalue().strip("\n").splitlines())
    return "```text\n" + "\n".join(lines) + "\n```\n"


def _group_section(group: Group) -> str:
    formatter = _context("inspect").make_formatter()
    formatter.write_dl(list(usual_records(group).values()))
    return f"## {group.title}\n\n{group.about}\n\n{_block(formatter)}"


def _command_section(name: str) -> str:
    context = _context(name)
    own, links = records_of(name), []
    for group in groups_of(name):
        usual = usual_records(group)
        missing = [
            f"`{spelled}`"
            for one, (option, _) in usual.items()
            if one not in own
            for spelled in re.findall(r"--?[a-z][a-z-]*", option) or option.split()[:1]
        ]
        without = f" (all but {', '.join(missing)})" if missing else ""
        links.append(f"[{group.title.lower()}]({group.anchor}){without}")
        own = {one: record for one, record in own.items() if record != usual.get(one)}
    formatter = context.make_formatter()
    context.command.format_help_text(context, formatter)
    arguments = {
        param.name for param in context.command.params if param.param_type_name != "option"
    }
    _listed("Arguments", (own[one] for one in own if one in arguments), formatter)
    _listed("Options", (own[one] for one in own if one not in arguments), formatter)
    shared = f"\nShared: {', '.join(links)}.\n" if links else ""
    return f"## batchplan {name}\n\n{_block(formatter)}{shared}"


def _about() -> str:
    """What ``batchplan --help`` says before the commands, which are the headings of the page."""
    context = typer.Context(_application(), info_name="batchplan", terminal_width=_WIDTH)
    formatter = context.make_formatter()
    context.command.format_help_text(context, formatter)
    own = (one.get_help_record(context) for one in context.command.get_params(context))
    _listed("Options", [record for record in own if record], formatter)
    return _block(formatter)


def reference() -> str:
    """The whole page."""
    sections = [_group_section(group) for group in GROUPS]
    sections += [_command_section(name) for name in command_names()]
    return "\n".join([_TOP, _about(), *sections])


if __name__ == "__main__":
    PAGE.write_text(reference())
