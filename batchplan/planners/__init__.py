"""Embeddings -> Plan: the planners, one file each, and the registry that names them.

A planner is a function ``(embeddings, options, runtime) -> Plan`` and a frozen dataclass of its
options. Registering both here gives it a command, the Python API and the contract tests. Planner
files import torch, numba and the graph code inside their functions, so that ``--help`` is instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchplan.checks import check_names
from batchplan.errors import InputError
from batchplan.planners.gcbs import GcbsOptions, gcbs
from batchplan.planners.greedy import BcsOptions, ScbOptions, bcs, scb
from batchplan.planners.options import PlannerOptions
from batchplan.planners.osgd import OsgdOptions, osgd
from batchplan.planners.random import RandomOptions, random
from batchplan.planners.shuffled import FixedOptions, ShuffledOptions, fixed, shuffled

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Observer, Runtime

__all__ = ["PLANNERS", "Planner", "PlannerOptions", "plan", "run_planner"]


@dataclass(frozen=True)
class Planner:
    """An entry of the registry.

    Attributes:
        make: ``(embeddings, options, runtime) -> Plan``.
        options: the class of its options.
        help: one line for the command line.
        example: a command line that shows it at work.
    """

    make: Callable[[Embeddings, Any, Runtime], Plan]
    options: type[PlannerOptions]
    help: str
    example: str


PLANNERS: dict[str, Planner] = {
    "gcbs": Planner(
        gcbs,
        GcbsOptions,
        "Similarity graph and reverse Cuthill-McKee (GCBS).",
        "batchplan gcbs embeddings.parquet --quantile 0.999 --batch-size 64 -o plan.npy",
    ),
    "bcs": Planner(
        bcs,
        BcsOptions,
        "Each batch takes the rows that raise its contrastive loss most (BcS).",
        "batchplan bcs embeddings.parquet --temperature 0.05 --batch-size 64 -o plan.npy",
    ),
    "scb": Planner(
        scb,
        ScbOptions,
        "Each row joins the batch whose contrastive loss it raises most (ScB).",
        "batchplan scb embeddings.parquet --random-fraction 0.5 --batch-size 64 -o plan.npy",
    ),
    "osgd": Planner(
        osgd,
        OsgdOptions,
        "Of random batches, those of the highest contrastive loss (OSGD).",
        "batchplan osgd embeddings.parquet --pool 8 --keep 1 -o plan.npy",
    ),
    "fixed": Planner(
        fixed,
        FixedOptions,
        "Random batches, the same in every epoch.",
        "batchplan fixed embeddings.parquet --seed 1 -o fixed.npy",
    ),
    "shuffled": Planner(
        shuffled,
        ShuffledOptions,
        "Random batches, new ones each epoch.",
        "batchplan shuffled embeddings.parquet --seed 1 --epoch 3 -o epoch3.npy",
    ),
    "random": Planner(
        random,
        RandomOptions,
        "Random batches: the baseline to beat.",
        "batchplan random embeddings.parquet --seed 1 -o random.npy",
    ),
}


def plan(
    embeddings: Embeddings,
    planner: str = "gcbs",
    *,
    seed: int = 0,
    device: str = "auto",
    memory: int | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Plan:
    """Plan the batches of an epoch.

    Args:
        embeddings: N pairs, from `load_embeddings` or `Embeddings.from_arrays`.
        planner: a name in `PLANNERS`.
        seed, device, memory, observer: see `Runtime`.
        options: fields of the planner's options: ``batch_size``, ``tail``, ``batch_order``,
            ``similarity`` and its own, such as ``quantile`` or ``neighbors`` of `GcbsOptions`.

    Raises:
        InputError: an unknown planner or option, or options that do not fit the data.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.runtime import Runtime

    if planner not in PLANNERS:
        raise InputError(f"planner: got {planner!r}, expected one of {', '.join(PLANNERS)}")
    kind = PLANNERS[planner].options
    check_names(options, kind, planner)
    runtime = Runtime(device, memory, seed, observer)
    return run_planner(planner, embeddings, kind(**options), runtime)


def run_planner(
    planner: str, embeddings: Embeddings, options: PlannerOptions, runtime: Runtime
) -> Plan:
    """`plan` with its settings already made; raises the same."""
    if options.batch_size > embeddings.num_rows:
        raise InputError(
            f"batch size: got {options.batch_size}, expected at most the {embeddings.num_rows} "
            "rows of the data"
        )
    return PLANNERS[planner].make(embeddings, options, runtime)
