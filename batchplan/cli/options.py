"""The arguments and options that commands share; the same option means the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from batchplan.cli.grouping import check_paths
from batchplan.errors import InputError
from batchplan.options import option, paths_of
from batchplan.quality import EvaluationOptions
from batchplan.runtime import Runtime, parse_memory

if TYPE_CHECKING:  # these would load numpy and rich
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
BATCH_SIZE = option(None, "For a plan file that does not know its own.", "--batch-size", "-b")
FORCE = option(False, "Replace the output if it exists.", "--force", "-f")
JSON = option(False, "Print JSON instead of a table.", "--json")


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

    def source(self, embeddings: list[str]) -> dict[str, Any]:
        """What `load_embeddings` is to read, as its arguments."""
        return {"paths": embeddings, **asdict(self), "pair": self.pair or None}


@dataclass(frozen=True, kw_only=True)
class Running:
    """What a command runs with."""

    seed: int = option(0, "Seed of every random choice.", ge=0)
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

    device: str = option("auto", "cpu, cuda, cuda:N, or auto: CUDA if there is one.")

    def runtime(self, watch: Watch, device: str = "cpu") -> Runtime:
        """The runtime that these options describe, on their own device."""
        return super().runtime(watch, self.device)


@dataclass(frozen=True, kw_only=True)
class Speaking:
    """How much is said on standard error."""

    quiet: bool = option(False, "No progress and no summary.", "--quiet", "-q")
    verbose: bool = option(False, "Say what happens on the way.", "--verbose", "-v")


class Opened(NamedTuple):
    """What a command works with while its work is watched."""

    data: Embeddings
    runtime: Runtime
    watch: Watch


@dataclass(frozen=True, kw_only=True)
class HostSession:
    """The options of every command that reads embeddings."""

    reading: Reading
    running: Running
    speaking: Speaking

    @contextmanager
    def opened(self, embeddings: list[str]) -> Iterator[Opened]:
        """Read the embeddings; progress is shown until the body ends."""
        from batchplan.cli.console import Watch
        from batchplan.data import load_embeddings

        watch = Watch(quiet=self.speaking.quiet, verbose=self.speaking.verbose)
        runtime = self.running.runtime(watch)
        with watch.watching():
            data = load_embeddings(**self.reading.source(embeddings), runtime=runtime)
            yield Opened(data, runtime, watch)


@dataclass(frozen=True, kw_only=True)
class Session(HostSession):
    """Those of a command that may compute on a device."""

    running: Computing


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """Columns that say which negatives are false ones."""

    label_column: str | None = option(
        None,
        "Column of classes: negatives of the same class count as false negatives.",
        kind="column",
    )
    group_column: str | None = option(
        None,
        "Column of groups: negatives of the same group count as false negatives, and break the "
        "guard.",
        kind="column",
    )
    label_table: str | None = option(
        None,
        "Parquet of these columns, a row for each row of the data.  [default: EMBEDDINGS]",
        kind="path",
    )

    def __post_init__(self) -> None:
        if self.label_table and self.label_column is None and self.group_column is None:
            raise InputError(
                "label table: given without --label-column or --group-column; name a column"
            )

    @property
    def columns(self) -> dict[str, str | None]:
        """Their names, as an evaluation keeps them."""
        return {"labels": self.label_column, "group": self.group_column}

    def codes(self, data: Embeddings) -> tuple[NDArray[int64] | None, NDArray[int64] | None]:
        """The labels and the groups of the rows, None for a column that was not named."""
        from batchplan.data import load_labels

        labels, groups = (
            None if column is None else load_labels(column, data, self.label_table)
            for column in (self.label_column, self.group_column)
        )
        return labels, groups


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """The options of every command that measures plans."""

    options: EvaluationOptions
    labelling: Labelling
    session: Session

    @property
    def paths(self) -> list[str]:
        """The files that these options name, besides the embeddings."""
        return paths_of(self.session.reading, self.labelling)
