"""docs/cli.md, made from the --help of every command: ``make docs`` runs this."""

from __future__ import annotations

from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from batchplan.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

_TOP = """\
# Command line

This page is made from `--help`. Do not edit it: change the help, then run `make docs`.

[The tutorial](tutorial.md) shows the commands at work, [formats.md](formats.md) says what they \
read and write, [planners.md](planners.md) what the planners do and [metrics.md](metrics.md) what \
`evaluate` prints. `python -m batchplan` is the same as `batchplan`.
"""


def command_names() -> list[str]:
    """The commands, in the order of ``batchplan --help``."""
    return list(get_command(app).commands)  # type: ignore[attr-defined]


def help_of(*arguments: str) -> str:
    """What ``batchplan ARGUMENTS --help`` prints on a terminal 80 columns wide."""
    runner = CliRunner(env={"COLUMNS": "80"})
    result = runner.invoke(app, [*arguments, "--help"], prog_name="batchplan")
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.stdout.strip("\n").splitlines())


def reference() -> str:
    """The whole page."""
    parts = [_TOP, f"```text\n{help_of()}\n```\n"]
    for name in command_names():
        parts.append(f"## batchplan {name}\n\n```text\n{help_of(name)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(reference())
