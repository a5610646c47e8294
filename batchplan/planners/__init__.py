"""Embeddings -> Plan: the planners, and the table of all of them.

A planner is a function ``(embeddings, options, runtime) -> Draft`` and a frozen dataclass of its
options. An entry in `PLANNERS` adds it to the command line, the Python API and the contract tests.
Modules of options import neither numpy nor torch, so that ``--help`` is instant. The function is
imported on use.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchplan.errors import InputError
from batchplan.options import check_names
from batchplan.planners.b3.options import B3Options
from batchplan.planners.chain.options import ChainOptions
from batchplan.planners.cluster.options import ClusterOptions
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.gcbs import GcbsOptions
from batchplan.planners.greedy.options import GreedyOptions, OsgdOptions
from batchplan.planners.hardneg import HardnegOptions
from batchplan.planners.knn.options import KnnOptions
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.random import RandomOptions, ShuffledOptions
from batchplan.planners.rwr.options import RwrOptions
from batchplan.planners.scns.options import ScnsOptions
from batchplan.runtime import Observer, Runtime
from batchplan.text import meant

if TYPE_CHECKING:
    from batchplan.data import Candidates, Data
    from batchplan.plans import Negatives, Plan

Function = Callable[[Any, Any, Runtime], Any]  # Draft, Mined or Candidates


@dataclass(frozen=True)
class Planner:
    """A row of the table of planners.

    Attributes:
        function: ``(embeddings, options, runtime) -> Draft``, or its dotted name. It returns
            `Mined` if the options ask for a table.
        options: the class of its options.
        help: one line for the command line.
        example: a command line.
        tuples: whether it plans data with mined negatives.
        lists: whether it plans lists of candidates, which have no vectors.
    """

    function: str | Function
    options: type[PlannerOptions]
    help: str
    example: str
    tuples: bool = False
    lists: bool = False

    def load(self) -> Function:
        """Return the function; import it if there is only its name."""
        if not isinstance(self.function, str):
            return self.function
        module, _, name = self.function.rpartition(".")
        return typing.cast("Function", getattr(import_module(module), name))


PLANNERS: dict[str, Planner] = {
    "partition": Planner(
        "batchplan.planners.partition.planner.partition",
        PartitionOptions,
        "Cut a neighbour graph into batches and refine them by the loss.",
        "batchplan partition embeddings.parquet --batch-size 64 -o plan.npy",
        tuples=True,
        lists=True,
    ),
    "gcbs": Planner(
        "batchplan.planners.gcbs.gcbs",
        GcbsOptions,
        "Order a similarity graph by reverse Cuthill-McKee (GCBS).",
        "batchplan gcbs embeddings.parquet --quantile 0.999 --batch-size 64 -o plan.npy",
        tuples=True,
    ),
    "bcs": Planner(
        "batchplan.planners.greedy.planner.bcs",
        GreedyOptions,
        "Let each batch choose the rows that raise its loss most (BcS).",
        "batchplan bcs embeddings.parquet --temperature 0.05 --batch-size 64 -o plan.npy",
    ),
    "scb": Planner(
        "batchplan.planners.greedy.planner.scb",
        GreedyOptions,
        "Let each row choose the batch whose loss it raises most (ScB).",
        "batchplan scb embeddings.parquet --temperature 0.05 --batch-size 64 -o plan.npy",
    ),
    "osgd": Planner(
        "batchplan.planners.greedy.osgd.osgd",
        OsgdOptions,
        "Keep the random batches with the highest loss (OSGD).",
        "batchplan osgd embeddings.parquet --pool 8 --keep 1 -o plan.npy",
    ),
    "shuffled": Planner(
        "batchplan.planners.random.shuffled",
        ShuffledOptions,
        "Draw new random batches in each epoch.",
        "batchplan shuffled embeddings.parquet --seed 1 --epoch 3 -o epoch3.npy",
        tuples=True,
        lists=True,
    ),
    "b3": Planner(
        "batchplan.planners.b3.planner.b3",
        B3Options,
        "Combine random clusters of rows that are near, but not nearest.",
        "batchplan b3 embeddings.parquet --cluster-size 16 --batch-size 64 -o b3.npy",
    ),
    "chain": Planner(
        "batchplan.planners.chain.planner.chain",
        ChainOptions,
        "Cut chains of rows, each most like the last, into batches (GRIT).",
        "batchplan chain embeddings.parquet --space-rows 1920 -o chain.npy",
    ),
    "knn": Planner(
        "batchplan.planners.knn.planner.knn",
        KnnOptions,
        "Group random rows with their nearest rows (kNN sampler).",
        "batchplan knn embeddings.parquet --batch-size 64 -o knn.npy",
    ),
    "cluster": Planner(
        "batchplan.planners.cluster.planner.cluster",
        ClusterOptions,
        "Make batches of balanced k-means clusters.",
        "batchplan cluster embeddings.parquet --iterations 10 -o cluster.npy",
    ),
    "hardneg": Planner(
        "batchplan.planners.hardneg.hardneg",
        HardnegOptions,
        "Mine hard negatives for each row, as a table or as batches.",
        "batchplan hardneg embeddings.parquet --relative-margin 0.05 -o negatives.parquet",
    ),
    "scns": Planner(
        "batchplan.planners.scns.planner.scns",
        ScnsOptions,
        "Draw negatives from the most similar rows or classes (SCNS).",
        "batchplan scns embeddings.parquet --top-k 100 --per-row 10 -o negatives.parquet",
    ),
    "random": Planner(
        "batchplan.planners.random.random",
        RandomOptions,
        "Draw random batches: the baseline to beat.",
        "batchplan random embeddings.parquet --seed 1 -o random.npy",
        tuples=True,
        lists=True,
    ),
    "rwr": Planner(
        "batchplan.planners.rwr.planner.rwr",
        RwrOptions,
        "Collect batches by random walks among neighbours (BatchSampler).",
        "batchplan rwr embeddings.parquet --candidate-rows 1000 --restart 0.2 -o rwr.npy",
    ),
}


def plan(
    x: Any,
    y: Any = None,
    planner: str | None = None,
    *,
    negatives: Any = None,
    cast: bool = False,
    seed: int = 0,
    device: str = "auto",
    memory: int | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Plan:
    """Plan the batches of an epoch: ``plan(x, y)``, or ``plan(embeddings, "gcbs")``.

    Args:
        x: (N, d) float16, bfloat16 or float32: an array, a tensor or a column, as
            `Embeddings.from_arrays` takes; or `Embeddings`, as `load_embeddings` reads them; or
            `Candidates`, mined lists.
        y: the other side; None if there is only one matrix. A text here is the planner.
        planner: a name in `PLANNERS`. Without one, the planner and its options are chosen by the
            rules of docs/planners.md#plan, and the reasons are reported to the observer.
        negatives: mined negatives of each row: (N, k, d), k arrays (N, d), or N arrays (k_i, d);
            see `Embeddings.from_arrays`.
        cast: round float64 to float32.
        seed, device, memory, observer: see `Runtime`.
        options: fields of the planner's options: ``batch_size``, ``tail``, ``batch_order``,
            ``similarity``, ``world_size``, ``scope`` and its own. Without a planner, fields of
            `PartitionOptions`.

    Raises:
        InputError: an unknown planner or option, options that do not fit the data, arrays that
            `Embeddings.from_arrays` refuses, or files that changed while they were read.
        ResourceError: not enough memory, or no such device.
    """
    if isinstance(y, str) and planner is None:
        y, planner = None, y
    settings = _settings(planner or "partition", options)
    runtime = Runtime(device, memory, seed, observer)
    if settings.makes_table():
        raise InputError(
            f"{planner}: makes a table of negatives; pass as_batches=True for a plan, or call "
            "batchplan.mine_negatives for the table"
        )
    embeddings = _data(x, y, negatives, cast)
    if planner is None:
        from batchplan.planners.choice import choose

        planner, settings = choose(embeddings, options, runtime)
    return typing.cast("Plan", run_planner(planner, embeddings, settings, runtime))


def mine_negatives(
    x: Any,
    y: Any = None,
    planner: str | None = None,
    *,
    cast: bool = False,
    seed: int = 0,
    device: str = "auto",
    memory: int | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Negatives:
    """Mine a table of negatives with ``hardneg`` (the default) or ``scns``.

    The arguments are those of `plan`.

    Raises:
        InputError: as `plan`; the planner, or its options, make a plan of batches.
        ResourceError: as `plan`.
    """
    if isinstance(y, str) and planner is None:
        y, planner = None, y
    planner = planner or "hardneg"
    if options.get("as_candidates"):
        raise InputError("as_candidates: makes candidates; call batchplan.mine_candidates")
    settings = _settings(planner, options)
    runtime = Runtime(device, memory, seed, observer)
    if not settings.makes_table():
        raise InputError(
            f"{planner}: makes a plan of batches with these options, expected a table of "
            "negatives; call plan, or use hardneg or scns without as_batches"
        )
    mined = run_planner(planner, _data(x, y, None, cast), settings, runtime)
    return typing.cast("Negatives", mined)


def mine_candidates(
    x: Any,
    y: Any = None,
    *,
    per_row: int = 100,
    cast: bool = False,
    device: str = "auto",
    memory: int | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Candidates:
    """Mine lists of the rows most similar to each anchor, which `plan` takes in place of vectors.

    Args:
        x, y, cast, device, memory, observer: as in `plan`.
        per_row: largest number of candidates of a row.
        options: other fields of the options of ``hardneg``, such as ``relative_margin``.

    Raises:
        InputError: as `plan`; a row without candidates.
        ResourceError: as `plan`.
    """
    options = {"batch_size": 2, **options, "per_row": per_row, "as_candidates": True}
    settings, runtime = _settings("hardneg", options), Runtime(device, memory, 0, observer)
    found = run_planner("hardneg", _data(x, y, None, cast), settings, runtime)
    return typing.cast("Candidates", found)


def _settings(planner: str, options: dict[str, Any]) -> PlannerOptions:
    """The options of a planner, checked."""
    if planner not in PLANNERS:
        hint = meant(planner, PLANNERS)
        raise InputError(f"planner: got {planner!r}, expected one of {', '.join(PLANNERS)}{hint}")
    kind = PLANNERS[planner].options
    check_names(options, kind, planner)
    return kind(**options)


def _data(x: Any, y: Any, negatives: Any, cast: bool) -> Data:
    from batchplan.data import Candidates, Embeddings

    if isinstance(x, Candidates):
        if y is not None or negatives is not None:
            raise InputError("y: given with candidates, which need no vectors; leave it out")
        return x
    if isinstance(x, str) and x in PLANNERS:
        raise InputError(f"x: got the planner {x!r}, expected data; write plan(x, y, {x!r})")
    return Embeddings.of(x, y, negatives=negatives, cast=cast)


def run_planner(
    planner: str, embeddings: Data, options: PlannerOptions, runtime: Runtime
) -> Plan | Negatives | Candidates:
    """`plan` with a dataclass of options and a runtime; raises the same."""
    _check(planner, embeddings, options)
    from batchplan.data import Candidates
    from batchplan.planners.common.finish import finish, finish_table

    if isinstance(options, PartitionOptions):
        from batchplan.planners.choice import settled

        options = settled(embeddings, options, runtime)
    draft = PLANNERS[planner].load()(embeddings, options, runtime)
    if isinstance(draft, Draft):
        draft = finish(draft, planner, embeddings, options, runtime)
    elif not isinstance(draft, Candidates):
        draft = finish_table(draft, planner, embeddings, options, runtime)
    embeddings.require_unchanged()
    return typing.cast("Plan | Negatives | Candidates", draft)


def _check(planner: str, embeddings: Data, options: PlannerOptions) -> None:
    """Require that the planner takes these data, and that the rows are enough for the batches and
    devices."""
    from batchplan.data import Candidates
    from batchplan.plans.steps import check_left

    num_rows, size, devices = embeddings.num_rows, options.batch_size, options.world_size
    if size * devices > num_rows:
        got, mend = f"{size}", "choose smaller batches"
        if devices > 1:
            got += f" x {devices} devices, which is {size * devices} rows per step"
            mend += ", or fewer devices"
        raise InputError(
            f"batch size: got {got}, expected at most the {num_rows} rows of the data; {mend}"
        )
    if options.makes_partition():
        check_left(num_rows % (size * devices), devices, options.tail)
    entry, others = PLANNERS[planner], PLANNERS.items()
    if isinstance(embeddings, Candidates):
        if not entry.lists:
            able = ", ".join(name for name, other in others if other.lists)
            raise InputError(
                f"candidates: {planner} plans from vectors; use {able}, or give embeddings"
            )
    elif embeddings.negatives and not entry.tuples:
        able = ", ".join(name for name, other in others if other.tuples)
        raise InputError(
            f"negatives: got {len(embeddings.negatives)} mined negatives a row, but {planner} "
            f"plans pairs; use {able}, or leave them out (--negatives none)"
        )
