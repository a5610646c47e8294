"""The arguments and options that commands share; the same option means the same everywhere."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchplan.errors import InputError
from batchplan.runtime import Observer, Runtime, parse_memory

if TYPE_CHECKING:
    from batchplan.data import Embeddings


def _check_paths(option: typer.CallbackParam, paths: list[str] | None) -> list[str] | None:
    if "-" in (paths or ()):
        raise InputError(
            f"{option.name}: standard input cannot be read twice; give a file or folder"
        )
    if "" in (paths or ()):  # an unset shell variable, which would mean the working directory
        raise InputError(f"{option.name}: got an empty path, expected a file, folder or glob")
    return paths


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="EMBEDDINGS",
        callback=_check_paths,
        help="One Parquet with two vector columns, or NPY or Parquet shards, folders or globs.",
    ),
]
Pair = Annotated[
    list[str] | None,
    typer.Option(
        callback=_check_paths,
        help="Shards of the other side of the pairs; repeat it for several.",
    ),
]
XColumn = Annotated[str | None, typer.Option(help="Parquet column of x, where it is ambiguous.")]
YColumn = Annotated[str | None, typer.Option(help="Parquet column of y, where it is ambiguous.")]
IdColumn = Annotated[
    str | None, typer.Option(help="Parquet column of row ids.  [default: id, if it is there]")
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", "-b", help="For a plan file that does not know its own."),
]
Cast = Annotated[bool, typer.Option("--cast", help="Accept float64 and round it to float32.")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: CUDA when there is one.")]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory to stay under, host and device, such as 8GB.  [default: most of what is free]"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say what happens on the way.")]


def make_runtime(device: str, memory: str | None, seed: int, observer: Observer | None) -> Runtime:
    """The runtime that the shared options describe."""
    return Runtime(device, None if memory is None else parse_memory(memory), seed, observer)


def read(
    runtime: Runtime, embeddings: list[str], pair: list[str] | None, **columns: Any
) -> Embeddings:
    """The embeddings that the shared options describe."""
    from batchplan.data import load_embeddings

    return load_embeddings(embeddings, pair or None, runtime=runtime, **columns)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output."""
    typer.echo(json_module.dumps(document, indent=2, allow_nan=False))
