"""The table of all planners.

A planner is a function ``(embeddings, options, runtime) -> Draft`` and a frozen dataclass of its
options. An entry in `PLANNERS` adds it to the command line, the Python API and the contract tests.
Modules of options import neither numpy nor torch, so that ``--help`` is instant. The function is
imported on use.
"""

import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.hardneg import HardnegOptions
from batchplan.planners.papers.b3.options import B3Options
from batchplan.planners.papers.chain.options import ChainOptions
from batchplan.planners.papers.cluster.options import ClusterOptions
from batchplan.planners.papers.gcbs.options import GcbsOptions
from batchplan.planners.papers.greedy.options import GreedyOptions, OsgdOptions
from batchplan.planners.papers.knn.options import KnnOptions
from batchplan.planners.papers.rwr.options import RwrOptions
from batchplan.planners.papers.scns.options import ScnsOptions
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.random import RandomOptions, ShuffledOptions
from batchplan.runtime import Runtime

Function = Callable[[Any, Any, Runtime], Any]  # Draft or Mined


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
        "batchplan.planners.papers.gcbs.planner.gcbs",
        GcbsOptions,
        "Order a similarity graph by reverse Cuthill-McKee (GCBS).",
        "batchplan gcbs embeddings.parquet --quantile 0.999 --batch-size 64 -o plan.npy",
    ),
    "bcs": Planner(
        "batchplan.planners.papers.greedy.planner.bcs",
        GreedyOptions,
        "Let each batch choose the rows that raise its loss most (BcS).",
        "batchplan bcs embeddings.parquet --temperature 0.05 --batch-size 64 -o plan.npy",
    ),
    "scb": Planner(
        "batchplan.planners.papers.greedy.planner.scb",
        GreedyOptions,
        "Let each row choose the batch whose loss it raises most (ScB).",
        "batchplan scb embeddings.parquet --temperature 0.05 --batch-size 64 -o plan.npy",
    ),
    "osgd": Planner(
        "batchplan.planners.papers.greedy.osgd.osgd",
        OsgdOptions,
        "Keep the random batches with the highest loss (OSGD).",
        "batchplan osgd embeddings.parquet --pool 8 --keep 1 -o plan.npy",
    ),
    "shuffled": Planner(
        "batchplan.planners.random.random",
        ShuffledOptions,
        "Draw new random batches in each epoch.",
        "batchplan shuffled embeddings.parquet --seed 1 --epoch 3 -o epoch3.npy",
        tuples=True,
        lists=True,
    ),
    "b3": Planner(
        "batchplan.planners.papers.b3.planner.b3",
        B3Options,
        "Combine random clusters of rows that are near, but not nearest.",
        "batchplan b3 embeddings.parquet --cluster-size 16 --batch-size 64 -o b3.npy",
    ),
    "chain": Planner(
        "batchplan.planners.papers.chain.planner.chain",
        ChainOptions,
        "Cut chains of rows, each most like the last, into batches (GRIT).",
        "batchplan chain embeddings.parquet --space-rows 1920 -o chain.npy",
    ),
    "knn": Planner(
        "batchplan.planners.papers.knn.planner.knn",
        KnnOptions,
        "Group random rows with their nearest rows (kNN sampler).",
        "batchplan knn embeddings.parquet --batch-size 64 -o knn.npy",
    ),
    "cluster": Planner(
        "batchplan.planners.papers.cluster.planner.cluster",
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
        "batchplan.planners.papers.scns.planner.scns",
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
        "batchplan.planners.papers.rwr.planner.rwr",
        RwrOptions,
        "Collect batches by random walks among neighbours (BatchSampler).",
        "batchplan rwr embeddings.parquet --candidate-rows 1000 --restart 0.2 -o rwr.npy",
    ),
}
