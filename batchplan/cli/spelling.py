"""Writes options as a command line."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any


def spelled(
    command: str, arguments: Sequence[str], *groups: Any, always: Collection[str] = (), **more: str
) -> str:
    """Return a command line for a shell, with the options that differ from their defaults.

    Args:
        command: its name, such as ``partition``.
        arguments: what it reads.
        groups: dataclasses of options.
        always: options that are named even if they have their defaults.
        more: other options, value by name.
    """
    words = ["batchplan", command, *arguments]
    for group in groups:
        words += _words(group, always)
    for name, value in more.items():
        words += [f"--{name}", value]
    return shlex.join(words)


def _words(options: Any, always: Collection[str]) -> Iterator[str]:
    usual = type(options)()
    for field in fields(options):
        value = getattr(options, field.name)
        same = value == getattr(usual, field.name) and field.name not in always
        if value is None or same:
            continue
        flags = field.metadata.get("flags") or [f"--{field.name.replace('_', '-')}"]
        if isinstance(value, bool):
            yield flags[0] if value else f"--no-{flags[0].removeprefix('--')}"
            continue
        for part in value if isinstance(value, list) else [value]:
            yield from (flags[0], str(part))
