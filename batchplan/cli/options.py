"""The arguments and options that commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from batchplan.cli.grouping import argument, check_paths
from batchplan.errors import InputError, OptionError
from batchplan.files.remote import local_path
from batchplan.options import SHARD_ORDER, ShardOrder, option, paths_of
from batchplan.quality import EvaluationOptions
from batchplan.runtime import Runtime

if TYPE_CHECKING:  # these load numpy and rich
    from numpy import int64
    from numpy.typing import NDArray

    from batchplan.cli.console import Watch
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.quality import RowFacts

PlanFile = Annotated[str, argument("PLAN", "Plan file, in any format.")]
Inputs = Annotated[
    list[str],
    argument(
        "EMBEDDINGS",
        "Files, folders, globs or URLs: both sides in one (Parquet, Arrow, safetensors), or x "
        "(also NPY, fbin).",
        check_paths,
    ),
]
BATCH_SIZE = option(None, "Batch size of a plan file without metadata.", "--batch-size", "-b")
FORCE = option(False, "Replace existing output.", "--force", "-f")
JSON = option(False, "Print JSON.", "--json")
MEMORY = option(
    None, "Memory limit for host and device, such as 8GB.  [default: most of what is free]"
)
QUIET = option(False, "Print no progress and no summary.", "--quiet", "-q")
_NAMED = ("x_column", "y_column", "id_column", "shard_order")  # as `load_embeddings` names them
VERBOSE = option(False, "Print each step.", "--verbose", "-v")


class Opened(NamedTuple):
    """What a command works with after it has read the data."""

    data: Any  # Embeddings; or Candidates of a `ListSession`
    runtime: Runtime
    watch: Watch


def refuse_plans(paths: Sequence[str], expected: str) -> None:
    """Refuse plans and tables of negatives among the files of ``expected``."""
    from batchplan.plans import is_plan

    for path in filter(None, map(local_path, paths)):  # plans are never behind URLs
        refused = is_plan(path)
        if not refused and path.suffix.lower() == ".parquet":  # other files need no Arrow
            from batchplan.plans.negatives import is_negatives

            refused = is_negatives(path)
        if refused:
            raise InputError(
                f"{path}: is a plan, expected {expected}; give plans first: PLAN {expected.upper()}"
            )


def load_plan(path: str, batch_size: int | None, num_rows: int) -> Plan:
    """Load a plan of that many rows.

    Raises:
        InputError: it is a table of negatives, or as `Plan.load`.
    """
    from batchplan.plans import Plan
    from batchplan.plans.negatives import is_negatives

    if is_negatives(path):
        raise InputError(
            f"{path}: is a table of negatives, expected a plan, which its planner makes with "
            "--as-batches"
        )
    return Plan.load(path, batch_size=batch_size, num_rows=num_rows)


@dataclass(frozen=True, kw_only=True)
class HostSession:
    """The options of every command that reads embeddings."""

    pair: list[str] | None = option(None, "Files of the other side. Repeatable.", kind="path")
    negatives: list[str] | None = option(
        None,
        "Files of mined negatives: one for each negative, or a table with the columns negative_1, "
        "... Repeatable; none reads none.  [default: such columns of EMBEDDINGS]",
        kind="path",
    )
    x_column: str | None = option(
        None,
        "Column or tensor of x.  [default: the first vector column; x or anchor]",
        kind="column",
    )
    y_column: str | None = option(
        None,
        "Column or tensor of y.  [default: the second vector column; y or positive]",
        kind="column",
    )
    id_column: str | None = option(
        None, "Column of row ids.  [default: id, if there is one]", kind="column"
    )
    shard_order: ShardOrder | None = SHARD_ORDER
    single: bool = option(False, "Read one matrix: each row is its own positive.", "--single")
    seed: int = option(0, "Random seed.", ge=0)
    memory: str | None = MEMORY
    quiet: bool = QUIET
    verbose: bool = VERBOSE

    def source(self, embeddings: list[str]) -> dict[str, Any]:
        """Return the arguments of `load_embeddings` that say what to read.

        Raises:
            BadParameter: there are no embeddings.
        """
        if not embeddings:
            raise typer.BadParameter("Missing argument 'EMBEDDINGS...'.")
        return {
            "paths": embeddings,
            "pair": self.pair or None,
            "single": self.single,
            "negatives": "none" if self.negatives == ["none"] else self.negatives or None,
            **{name: getattr(self, name) for name in _NAMED},
        }

    @contextmanager
    def opened(self, embeddings: list[str], watch: Watch | None = None) -> Iterator[Opened]:
        """Read the embeddings; progress is shown until the body ends, by ``watch`` if it has begun.

        Raises:
            InputError: a plan is among them; or as `load_embeddings`.
        """
        from batchplan.cli.console import Watch

        refuse_plans(embeddings, "embeddings")
        watch = watch or Watch(quiet=self.quiet, verbose=self.verbose)
        runtime = Runtime.of(self.where(), self.memory, self.seed, watch)
        with watch.watching():
            yield Opened(self.load(embeddings, runtime), runtime, watch)

    def where(self) -> str:
        """Return the device."""
        return "cpu"

    def load(self, embeddings: list[str], runtime: Runtime) -> Any:
        """Read the embeddings."""
        from batchplan.data import load_embeddings

        return load_embeddings(
            **self.source(embeddings), memory=runtime.memory, observer=runtime.observer
        )


@dataclass(frozen=True, kw_only=True)
class Session(HostSession):
    """The options of a command that may compute on a device."""

    device: str = option("auto", "cpu, cuda (all devices), cuda:N, or auto: CUDA if available.")

    def where(self) -> str:
        return self.device


@dataclass(frozen=True, kw_only=True)
class ListSession(Session):
    """The options of a command that also works without vectors."""

    candidates: str | None = option(
        None,
        "Parquet file of lists, instead of EMBEDDINGS, with the columns ids, scores and positive.",
        kind="path",
        metavar="FILE",
    )

    def source(self, embeddings: list[str]) -> dict[str, Any]:
        if self.candidates is None:
            return super().source(embeddings)
        if embeddings or self.pair or self.negatives:
            raise OptionError(
                "candidates: given with embeddings, which have more information; leave out one of "
                "the two"
            )
        return {"path": self.candidates}

    def where(self) -> str:
        return self.device if self.candidates is None else "cpu"

    def load(self, embeddings: list[str], runtime: Runtime) -> Any:
        if self.candidates is None:
            return super().load(embeddings, runtime)
        from batchplan.data import Candidates

        with runtime.stage("read"):
            return Candidates.load(**self.source(embeddings))


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """The options of every command that measures plans."""

    options: EvaluationOptions
    group_column: str | None = option(
        None,
        "Column of groups or classes. Two rows of one group break the guard.",
        kind="column",
    )
    session: Session

    def __post_init__(self) -> None:
        self.options.check_table(self.group_column)

    def groups(self, data: Embeddings) -> NDArray[int64] | None:
        """Return the codes (N,) of the groups; None if no column is named."""
        from batchplan.data import load_labels

        if self.group_column is None:
            return None
        return load_labels(self.group_column, data, self.options.label_table)

    def facts(self, data: Embeddings, runtime: Runtime) -> RowFacts:
        """Read the groups and the reference that these options name."""
        from batchplan.quality import RowFacts

        groups = self.groups(data)
        return RowFacts.read(data, self.options, runtime, groups, self.group_column)

    @property
    def paths(self) -> list[str]:
        """The files that these options name, besides the embeddings."""
        return paths_of(self.options, self.session, self)


@dataclass(frozen=True, kw_only=True)
class ListMeasuring(Measuring):
    """The options of a command that also measures plans without vectors."""

    session: ListSession
