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
from batchplan.planners.common.choice import SIZING, count_mega_batches
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
        planner, num_rows, every, keep, seed, draws, parts, avoid, planned_epochs, random_epochs,
            device, memory, options: see `EpochPlans`; ``options`` with ``world_size``.

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
    draws: int
    parts: int
    avoid: int
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
        self._require_parts()

    def described(self) -> dict[str, Any]:
        """What a run that resumes must have again, as JSON values."""
        run = {
            "planner": self.planner,
            "seed": self.seed,
            "every": self.every,
            "parts": self.parts,
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
        """Save the plan of an epoch, and those of others that the same vectors are for.

        Args:
            epoch: from 0.
            sides: (N, d) each: x, y if there are pairs, and mined negatives.
        """
        if not self.is_planned(epoch):
            self._draw(epoch - epoch % self.every)
            return
        embeddings = Embeddings.from_arrays(*sides[:2], negatives=sides[2:] or None)
        settings = self._settings
        if earlier := range(epoch - epoch % self.parts, epoch):
            used = [str(self.files.plan_path(part)) for part in earlier]
            settings = {**settings, "exclude": used, "reembedded": True}
        if self._to_size is not None:
            count = self._mega_batches(embeddings, self._to_size)
            settings = {**settings, "mega_batches": count, "mega_batch_rows": None}
        firsts = self._together(epoch)
        for first in reversed(firsts):  # that of this epoch, for which others wait, comes last
            if not self.files.plan_path(first).exists():
                own = {**settings, "seed": self.seed + first}
                if near := self._to_avoid(first, firsts):
                    own["avoid"] = near
                plan(embeddings, self.planner, **own).save(self.files.plan_path(first))

    def remove_old(self, epoch: int) -> None:
        """Remove all but the newest plans that are kept, after that of an epoch was made."""
        made = self._together(epoch) if self.is_planned(epoch) else range(epoch, epoch + 1)
        newest = self.files.plan_path(made[-1])
        self.files.remove_plans(newest, self.keep)

    def newest(self) -> Plan | None:
        """The last plan in the folder, if there is one."""
        saved = self.files.saved()
        return Plan.load(saved[-1]) if saved else None

    def _together(self, epoch: int) -> range:
        """The first epochs of the plans that are made together with that of an epoch."""
        together = self.every * self.draws
        end = epoch - epoch % together + together
        if self.planned_epochs is not None:
            end = min(end, self.random_epochs + self.planned_epochs)
        return range(epoch - epoch % self.every, end, self.every)

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

    def _to_avoid(self, first: int, drawn: range) -> list[str]:
        """The plans before that of ``first``, the last one first, and those after it that were
        drawn from the same vectors."""
        before = [first - number * self.every for number in range(1, self.avoid + 1)]
        after = [later for later in drawn if later > first][: self.avoid]
        paths = [self.files.plan_path(near) for near in before + after]
        return [str(path) for path in paths if path.exists()]

    def _checked(self) -> Any:
        """The options of the planner, after all were checked."""
        planner, options = self.planner, self.options
        planned_epochs, random_epochs = self.planned_epochs, self.random_epochs
        every, keep, draws = self.every, self.keep, self.draws
        parts, avoid = self.parts, self.avoid
        if planner not in PLANNERS:
            raise InputError(f"planner: got {planner!r}, expected one of {', '.join(PLANNERS)}")
        for name, number in (
            ("every", every), ("draws", draws), ("parts", parts), ("keep", keep)
        ):  # fmt: skip
            if number < 1:
                raise InputError(f"{name}: got {number}, expected an integer of at least 1")
        if draws > 1 and (parts > 1 or keep < draws):
            raise InputError(
                f"draws: got {draws} with parts={parts} and keep={keep}, expected whole passes, "
                "and all draws kept; each part is planned from the model as it is then"
            )
        kind = PLANNERS[planner].options
        check_names(options, kind, planner)
        chosen = kind(**options)
        if parts > 1 and (not hasattr(chosen, "exclude") or every > 1 or keep < parts):
            raise InputError(
                f"parts: got {parts} with {planner}, every={every} and keep={keep}, expected a "
                "planner with the option exclude (rwr), a plan for every part, and all parts kept"
            )
        if avoid and (avoid < 0 or not hasattr(chosen, "avoid") or keep < avoid):
            raise InputError(
                f"avoid: got {avoid} with {planner} and keep={keep}, expected a number of plans, "
                "all of which are kept, and a planner with the option avoid (partition)"
            )
        if random_epochs < 0 or (planned_epochs is not None and planned_epochs < 1):
            raise InputError(
                f"epochs: got {random_epochs} random and {planned_epochs} planned ones, expected "
                "at least 0 and 1"
            )
        if (random_epochs or planned_epochs is not None) and (
            parts > 1
            or not chosen.makes_partition()
            or options.get("source_column")
            or (options.get("group_column") and not options.get("label_table"))
        ):
            raise InputError(
                f"random epochs: got {planner} with parts={parts}, expected whole passes, a "
                "planner that uses each row once, no source_column, which random batches do not "
                "follow, and a label_table with a group_column, as nothing is embedded for them; "
                "or plan all epochs"
            )
        if chosen.makes_table():
            raise InputError(f"{planner}: makes a table of negatives; pass as_batches=True")
        return chosen

    def _require_parts(self) -> None:
        """Require that the last part of a pass has the rows of at least a step, and no more than
        it can hold."""
        count, batching = self._settings.get("num_batches"), self.batching
        if self.parts == 1 or count is None:
            return
        size, drop = batching.batch_size, batching.tail == "drop"
        devices = 1 if batching.scope == "global" else batching.world_size
        if count % devices:
            raise InputError(
                f"num batches: got {count} for {devices} devices, expected a multiple of {devices} "
                "where a pass has several parts"
            )
        least = size * devices if drop else 1
        most = size * count + (size * devices - 1) * drop
        last = self.num_rows - (self.parts - 1) * size * count
        uneven = not drop and -(-last // size) % devices
        if not least <= last <= most or uneven:
            alike = f", in batches for all of {devices} devices" * (devices > 1)
            raise InputError(
                f"parts: {self.parts} of {count} batches of {size} rows leave {last} of "
                f"{self.num_rows} rows to the last part, expected {least} to {most}{alike}; "
                "change parts or num_batches, or pass tail='drop'"
            )
