"""Every option of every command that takes a value, with the value of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

import batchplan
from batchplan.cli.app import app

COMMANDS = typer.main.get_command(app).commands
# The options that are read behind URLs, too.
READ = {"embeddings", "pair", "reference", "reference_pair", "label_table", "text_table"}
_ROWS, _GROUPS = 48, 12
_ARGUMENTS = {
    "embeddings": ["pairs.parquet"],
    "plan": ["plan.npy"],
    "inputs": ["plan.npy", "pairs.parquet"],
    "parts": ["plan.npy", "plan.npy"],
    "plans": ["plan.npy"],
    "data": ["pairs.parquet"],
    "model": ["model"],
}
# What commands need besides their arguments; those that plan, a size.
_NEEDED = {
    "evaluate": [],
    "check": ["--fail-over", "loss_train=100", "--junit", "check.xml", "-f"],
    "compare": ["-b", "8", "--planners", "random"],
    "inspect": [],
    "report": ["-f"],
    "concat": ["-f"],
    "materialize": ["-o", "folder", "-f"],
    "embed": ["--columns", "text", "-o", "folder", "-f"],
    "verify-consumption": ["--trace", "trace"],
    "warmup": [],
}
_PLANNING = ["-b", "8", "-f", "--verbose"]
# What an option needs besides its value, and the file that its value names.
_WITH = {
    "label_table": ["--group-column", "group"],
    "reference": ["--relative-margin", "0.1"],
    "reference_pair": ["--relative-margin", "0.1", "--reference", "x.npy"],
    "text_table": ["--text-columns", "text"],
}
_FILES = {"pair": "y.npy", "reference_pair": "y.npy",
          "avoid": "plan.npy", "plan": "plan.npy",
          "parts": "plan.npy", "plans": "plan.npy"}  # fmt: skip


def write_files(folder: Path) -> None:
    """The files that the command lines name."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((_ROWS, 8)).astype(np.float32)
    y = x + rng.standard_normal(x.shape).astype(np.float32) / 2
    groups = np.arange(_ROWS) % _GROUPS
    sides = {name: pa.array(list(side)) for name, side in (("x", x), ("y", y))}
    texts = [f"text {row}" for row in range(_ROWS)]
    pq.write_table(pa.table({**sides, "group": groups, "text": texts}), folder / "pairs.parquet")
    for name, rows in (("x", x), ("y", y)):
        np.save(folder / f"{name}.npy", rows)
    batchplan.plan(x, y, planner="random", batch_size=8).save(folder / "plan.npy")


def lines(
    command: str, value: Callable[[str], str], *, texts: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """The name of each option of a command that takes a value, and a command line with it.

    Args:
        command: its name.
        value: what to pass, given the name of a file that would do.
        texts: leave out options that take numbers or some words alone, which are no paths.
    """
    hints = COMMANDS[command].callback.__annotations__
    parameters = COMMANDS[command].params
    arguments = {one.name: _ARGUMENTS[one.name] for one in parameters if not _is_option(one)}
    needed = _NEEDED.get(command, _PLANNING)
    for one in parameters:
        if getattr(one, "is_flag", False) or (texts and "str" not in str(hints[one.name])):
            continue
        given = value(_FILES.get(one.name, "pairs.parquet"))
        if _is_option(one):
            more = [*_WITH.get(one.name, []), one.opts[0], given]
            both = "x.npy" if one.name == "pair" else "pairs.parquet"  # the file of both sides
            words = [word.replace("pairs.parquet", both) for word in _joined(arguments)]
            yield one.name, [command, *words, *needed, *more]
            continue
        for place in range(len(arguments[one.name])):
            own = [*arguments[one.name]]
            own[place] = given
            yield one.name, [command, *_joined({**arguments, one.name: own}), *needed]


def _is_option(parameter: typer.core.TyperOption) -> bool:
    return parameter.opts[0].startswith("-")


def _joined(arguments: dict[str, list[str]]) -> list[str]:
    return [word for words in arguments.values() for word in words]


def keys_in(keys: Iterable[str], shown: Iterable[str], folder: Path | None = None) -> list[str]:
    """Those that stand in a text, or in the name or the bytes of a file of a folder."""
    texts = [text.encode(errors="backslashreplace") for text in shown]
    for path in [] if folder is None else folder.rglob("*"):
        texts += [bytes(path), path.read_bytes() if path.is_file() else b""]
    return [key for key in keys if any(key.encode() in text for text in texts)]
