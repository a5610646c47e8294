"""The arguments and options that commands share; the same option means the same everywhere."""

from __future__ import annotations

import json as json_module
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchplan.cli.grouping import check_paths
from batchplan.errors import InputError, OutputError
from batchplan.options import option
from batchplan.runtime import Runtime, parse_memory

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from batchplan.cli.console import Watch
    from batchplan.data import Embeddings


PlanFile = Annotated[str, typer.Argument(metavar="PLAN", help="Plan file of any format.")]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="EMBEDDINGS",
        callback=check_paths,
        help="One Parquet with two vector columns, or NPY or Parquet shards, folders or globs.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", "-b", help="For a plan file that does not know its own."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How embeddings are read."""

    pair: list[str] | None = option(
        None, "Shards of the other side of the pairs; repeat it for several.", kind="path"
    )
    x_column: str | None = option(
        None, "Parquet column of x, where it is ambiguous.", kind="column"
    )
    y_column: str | None = option(
        None, "Parquet column of y, where it is ambiguous.", kind="column"
    )
    id_column: str | None = option(
        None, "Parquet column of row ids.  [default: id, if it is there]", kind="column"
    )
    cast: bool = option(False, "Accept float64 and round it to float32.", "--cast")

    def load(self, embeddings: list[str], runtime: Runtime) -> Embeddings:
        """The embeddings at these paths."""
        from batchplan.data import load_embeddings

        return load_embeddings(
            embeddings,
            self.pair or None,
            x_column=self.x_column,
            y_column=self.y_column,
            id_column=self.id_column,
            cast=self.cast,
            runtime=runtime,
        )


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """Columns that say which negatives are false ones."""

    labels: str | None = option(
        None,
        "Column of classes: negatives of the same class are counted as false ones.",
        kind="column",
    )
    group_column: str | None = option(
        None,
        "Column of groups, which are counted likewise; pairs of one are too similar.",
        kind="column",
    )
    label_table: str | None = option(
        None,
        "Parquet of these columns, a row for each row of the data.  [default: EMBEDDINGS]",
        kind="path",
    )

    def __post_init__(self) -> None:
        if self.label_table is not None and self.labels is None and self.group_column is None:
            raise InputError("label table: given without --labels or --group-column; name a column")

    @property
    def columns(self) -> dict[str, str | None]:
        """Their names, as an evaluation keeps them."""
        return {"labels": self.labels, "group": self.group_column}

    def codes(self, data: Embeddings) -> tuple[NDArray[int64] | None, NDArray[int64] | None]:
        """The labels and the groups of the rows, None for a column that was not named."""
        from batchplan.data import load_labels

        labels, groups = (
            None if column is None else load_labels(column, data, self.label_table)
            for column in (self.labels, self.group_column)
        )
        return labels, groups


@dataclass(frozen=True, kw_only=True)
class Speaking:
    """How much is said on standard error."""

    quiet: bool = option(False, "No progress and no summary.", "--quiet", "-q")
    verbose: bool = option(False, "Say what happens on the way.", "--verbose", "-v")

    def watch(self) -> Watch:
        """A watch of the stages that speaks so."""
        from batchplan.cli.console import Watch

        return Watch(quiet=self.quiet, verbose=self.verbose)


@dataclass(frozen=True, kw_only=True)
class Running:
    """What a command runs with."""

    seed: int = option(0, "Seed of every random choice.")
    memory: str | None = option(
        None, "Memory to stay under, host and device, such as 8GB.  [default: most of what is free]"
    )

    def runtime(self, watch: Watch, device: str = "cpu") -> Runtime:
        """The runtime that these options describe."""
        memory = None if self.memory is None else parse_memory(self.memory)
        return Runtime(device, memory, self.seed, watch)


@dataclass(frozen=True, kw_only=True)
class Computing(Running):
    """What a command runs with, and where."""

    device: str = option("auto", "cpu, cuda, cuda:N, or auto: CUDA when there is one.")

    def runtime(self, watch: Watch, device: str = "cpu") -> Runtime:
        """The runtime that these options describe, on their own device."""
        return super().runtime(watch, self.device)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output, in ASCII, and no command to a CI runner."""
    text = json_module.dumps(document, indent=2, allow_nan=False)
    typer.echo(re.sub("#(?=#)", r"\\u0023", text))


def require_output() -> None:
    """Require a standard output to print on.

    Raises:
        OutputError: it is closed.
    """
    if sys.stdout is None:
        raise OutputError("standard output: is closed, and what is asked for goes there; open it")
