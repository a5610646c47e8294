"""Makes the plans of epochs from vectors: seeds, mega-batches, and what earlier plans decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.options import check_names, named, recorded
from batchplan.planners import PLANNERS, plan
from batchplan.planners.choice import SIZING, count_mega_batches
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.batching import Batching
from batchplan.plans.plan import Plan
from batchplan.runtime import Runtime
from batchplan.training.folder import PlanFolder

RANDOM = "random"


@dataclass
class EpochPlanner:
    """Makes and saves the plans of a run, in the process of rank 0 or in one that plans for it.

    Args:
        files: the folder of the plans.
        planner, num_rows, every, keep, seed, planned_epochs, random_epochs, device, memory,
            options: see `EpochPlans`; ``options`` with ``world_size``.

    Attributes:
        batching: how the rows of every plan are cut.
        partitions: whether the planner uses each row once.

    Raises:
        InputError: an unknown planner or option, options that contradict each other, or a planner
            that makes no plan.
    """

    files: PlanFolder
    planner: str
    num_rows: int
    _: KW_ONLY
    every: int
    keep: int
    seed: int
    planned_epochs: int | None
    random_epochs: int
    device: str
    memory: int | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        self._chosen = chosen = self._checked()
        self.batching: Batching = chosen.batching()
        self.partitions: bool = chosen.makes_partition()
        self._settings = {"device": self.device, "memory": self.memory, **self.options}
        self._to_size: PartitionOptions | None = None
        if isinstance(chosen, PartitionOptions) and (
            chosen.mega_batches == "auto" or not SIZING & self.options.keys()
        ):
            self._to_size = chosen

    def described(self) -> dict[str, Any]:
        """What a run that resumes must have again, as JSON values."""
        run = {
            "planner": self.planner,
            "seed": self.seed,
            "every": self.every,
            **recorded(self._chosen),
        }
        for path in named(self._chosen, "path"):  # the same files may have other names then
            run.pop(path, None)
        return run

    def arguments(self) -> dict[str, Any]:
        """Those of this class but ``files``, for the process that plans next to the training: on
        the CPU, unless a device was named, as the training uses the GPU."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        del mine["files"]
        return {**mine, "device": "cpu" if self.device == "auto" else self.device}

    def is_planned(self, epoch: int) -> bool:
        """Whether an epoch is planned; others get random batches."""
        first = epoch - epoch % self.every
        last = inf if self.planned_epochs is None else self.random_epochs + self.planned_epochs
        return self.random_epochs <= first < last

    def expected(self, epoch: int) -> dict[str, Any]:
        """What the metadata of the plan of an epoch must say."""
        first = epoch - epoch % self.every
        return {
            "planner": self.planner if self.is_planned(epoch) else RANDOM,
            "seed": self.seed + first,
            **asdict(self.batching),
        }

    def make(self, epoch: int, sides: Sequence[NDArray[np.float16]]) -> None:
        """Save the plan of an epoch.

        Args:
            epoch: from 0.
            sides: (N, d) each: x, y if there are pairs, and mined negatives.
        """
        first = epoch - epoch % self.every
        if not self.is_planned(epoch):
            self._draw(first)
            return
        embeddings = Embeddings.from_arrays(*sides[:2], negatives=sides[2:] or None)
        settings = {**self._settings, "seed": self.seed + first}
        if self._to_size is not None:
            count = self._mega_batches(embeddings, self._to_size)
            settings |= {"mega_batches": count, "mega_batch_rows": None}
        plan(embeddings, self.planner, **settings).save(self.files.plan_path(epoch))

    def remove_old(self, epoch: int) -> None:
        """Remove all but the newest plans that are kept, after that of an epoch was made."""
        self.files.remove_plans(self.files.plan_path(epoch), self.keep)

    def newest(self) -> Plan | None:
        """The last plan in the folder, if there is one."""
        saved = self.files.saved()
        return Plan.load(saved[-1]) if saved else None

    def _draw(self, first: int) -> None:
        """Save random batches, which part the groups of the planned ones."""
        alike = Embeddings.from_arrays(np.ones((self.num_rows, 1), np.float16))
        groups: dict[str, Any] = {
            name: self._settings.get(name) for name in ("group_column", "label_table")
        }
        options = {**asdict(self.batching), **groups, "guard": False}
        drawn = plan(alike, RANDOM, seed=self.seed + first, device="cpu", **options)
        metadata = replace(drawn.metadata, fingerprint=None)  # of no data in particular
        Plan(drawn.rows, drawn.batch_offsets, metadata).save(self.files.plan_path(first))

    def _mega_batches(self, embeddings: Embeddings, options: PartitionOptions) -> int:
        """How many the plans in the folder have; for the first one, what its vectors tell."""
        if (newest := self.newest()) is not None:
            kept = newest.metadata.options.get("mega_batches")
            if isinstance(kept, int):
                return kept
        runtime = Runtime(self._settings["device"], self._settings["memory"], self.seed)
        return count_mega_batches(embeddings, options, runtime)

    def _checked(self) -> Any:
        """The options of the planner, after all were checked."""
        planner, options = self.planner, self.options
        planned_epochs, random_epochs = self.planned_epochs, self.random_epochs
        every, keep = self.every, self.keep
        if planner not in PLANNERS:
            raise InputError(f"planner: got {planner!r}, expected one of {', '.join(PLANNERS)}")
        for name, number in (("every", every), ("keep", keep)):
            if number < 1:
                raise InputError(f"{name}: got {number}, expected an integer of at least 1")
        kind = PLANNERS[planner].options
        check_names(options, kind, planner)
        chosen = kind(**options)
        if random_epochs < 0 or (planned_epochs is not None and planned_epochs < 1):
            raise InputError(
                f"epochs: got {random_epochs} random and {planned_epochs} planned ones, expected "
                "at least 0 and 1"
            )
        if (random_epochs or planned_epochs is not None) and (
            not chosen.makes_partition()
            or options.get("source_column")
            or (options.get("group_column") and not options.get("label_table"))
        ):
            raise InputError(
                f"random epochs: got {planner}, expected a "
                "planner that uses each row once, no source_column, which random batches do not "
                "follow, and a label_table with a group_column, as nothing is embedded for them; "
                "or plan all epochs"
            )
        if chosen.makes_table():
            raise InputError(f"{planner}: makes a table of negatives; pass as_batches=True")
        return chosen
