"""Makes and saves the plan of each epoch from vectors."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.errors import BatchplanError, InputError
from batchplan.files.atomic import remove, write_files
from batchplan.files.remote import located
from batchplan.options import LIMITS, check_names, named_paths, recorded
from batchplan.planners import PLANNERS, plan
from batchplan.planners.choice import SIZING, count_mega_batches
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.batching import Batching
from batchplan.plans.plan import BEGUN, Plan
from batchplan.plans.steps import batches_per_step
from batchplan.runtime import Runtime
from batchplan.training.figures import measured
from batchplan.training.folder import PlanFolder
from batchplan.typing import Int64Array

RANDOM = "random"
_TURN = "turn"  # among the options of a plan: the batch from which on its epoch has another one
_IDS = "anchor_id", "positive_id", "negative_id"
_OF_ANY_ROWS = "label_table", "known"  # files of which the rows of a half epoch may be planned

_LOGGER = logging.getLogger(__name__)


@dataclass(kw_only=True)
class PlanMaker:
    """Makes and saves the plans of a run, in the process of rank 0 or in one that plans for it.

    Args:
        files: the folder of the plans.
        planner, num_rows, seed, epochs, planned_epochs, random_epochs, device, memory, options:
            see `EpochPlans`; ``options`` with ``world_size``.

    Attributes:
        batching: how the rows of every plan are cut.
        partitions: whether the planner uses each row once.
        blind: whether no plan depends on vectors: they are random, and ids say which rows are
            equal.
        cosine: whether the planner compares directions, which vectors of zeros do not have.

    Raises:
        InputError: the planner or an option is unknown, options contradict each other, or the
            planner makes no plan.
    """

    files: PlanFolder
    planner: str
    num_rows: int
    seed: int
    epochs: float | None
    planned_epochs: int | None
    random_epochs: float | None
    device: str
    memory: int | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        self._epochs = None if self.epochs is None else ceil(self.epochs)
        self._turns: dict[int, int] = {}  # of epochs that go on
        self._chosen = chosen = self._checked()
        self.batching: Batching = chosen.batching()
        self.partitions: bool = chosen.makes_partition()
        drawn = self.planner in (RANDOM, "shuffled")
        self.cosine = not drawn and getattr(chosen, "similarity", None) == "cosine"
        self.blind: bool = (
            drawn
            and not chosen.refine
            and (chosen.names_ids or not chosen.guard)
            and all(getattr(chosen, name) is None for name in LIMITS)
        )

    def described(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with this one, as JSON values."""
        run = {"planner": self.planner, "seed": self.seed, "every": self.files.every}
        paths = named_paths(self._chosen)  # the same files may have other names then
        options = recorded(self._chosen).items()
        return run | {name: value for name, value in options if name not in paths}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of this class, without ``files``, for the process that plans next to
        the training. It uses the CPU unless a device was named, as the training uses the GPU."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        del mine["files"]
        return {**mine, "device": "cpu" if self.device == "auto" else self.device}

    def is_planned(self, epoch: int) -> bool:
        """Return whether an epoch is planned from vectors when it begins. Others get random
        batches."""
        first = ceil(self._random_epochs)
        last = inf if self.planned_epochs is None else first + self.planned_epochs
        return not self.blind and first <= self.files.first(epoch) < last

    def turn(self, epoch: int) -> int:
        """Return how many batches of an epoch are random before a planned rest; 0 if there is
        none."""
        if epoch in self._turns:
            return self._turns[epoch]
        share = self._random_epochs - epoch
        if self.blind or not 0 < share < 1:
            return 0
        batching = self.batching
        at_once = batches_per_step(batching.world_size, batching.scope)
        steps = max(1, self.num_rows // (batching.batch_size * at_once))
        return min(max(1, round(share * steps)), steps - 1) * at_once

    def go_on(self, epoch: int, plan: Plan) -> None:
        """Let an epoch that goes on with its plan have the turn that it began with."""
        self._turns[epoch] = int(plan.metadata.options.get(_TURN, 0))

    def make(self, epoch: int, sides: Sequence[NDArray[np.float16]]) -> None:
        """Save the plan of an epoch, with `measured` figures among its metrics.

        Args:
            epoch: from 0.
            sides: (N, d) each: x, y if there are pairs, and mined negatives.
        """
        made = self._planned(epoch, sides) if self.is_planned(epoch) else self._random(epoch)
        remove(self.files.rest_path(epoch))  # of a plan that was removed
        made.save(self.files.plan_path(epoch))

    def make_rest(self, epoch: int, sides: Sequence[NDArray[np.float16]]) -> None:
        """Plan the rest of an epoch that began with random batches.

        Args:
            epoch: from 0.
            sides: (n, d) each: the vectors of `rest`.
        """
        begun, rest = self.begun(epoch)
        offsets = begun.batch_offsets[: self.turn(epoch) + 1]
        labels = self._labels_of(rest, epoch)
        planned = self._planned(epoch, sides, **labels)
        own = {name: self.options.get(name) for name in labels}
        options = {**planned.metadata.options, **own, BEGUN: begun.digest}
        facts: dict[str, Any] = {"num_rows": self.num_rows, "fingerprint": None, "options": options}
        rows = np.concatenate([begun.rows[: offsets[-1]], rest[planned.rows]])
        offsets = np.concatenate([offsets, offsets[-1] + planned.batch_offsets[1:]])
        Plan(rows, offsets, replace(planned.metadata, **facts)).save(self.files.rest_path(epoch))

    def begun(self, epoch: int) -> tuple[Plan, Int64Array]:
        """Return the plan that an epoch began with, and the rows that are not in its random
        batches: int64 (n,), rising."""
        plan = Plan.load(self.files.plan_path(epoch))
        first = plan.rows[: plan.batch_offsets[self.turn(epoch)]]
        return plan, np.setdiff1d(np.arange(self.num_rows), first)

    def newest(self) -> Plan | None:
        """Return the last plan in the folder, if there is one."""
        saved = self.files.saved()
        return Plan.load(saved[-1]) if saved else None

    def _seed(self, epoch: int) -> int:
        return self.seed + self.files.first(epoch)

    def _planned(self, epoch: int, sides: Sequence[NDArray[np.float16]], **labels: str) -> Plan:
        embeddings = Embeddings.from_arrays(*sides[:2], negatives=sides[2:] or None)
        options = {**self.options, **labels}
        if isinstance(self._chosen, PartitionOptions) and (
            self._chosen.mega_batches == "auto" or not SIZING & options.keys()
        ):
            count = self._mega_batches(embeddings, self._chosen)
            options |= {"mega_batches": count, "mega_batch_rows": None}
        options |= self._chosen.at_epoch(self.files.first(epoch), self._epochs)
        options |= {"device": self.device, "memory": self.memory}
        made: Plan = plan(embeddings, planner=self.planner, seed=self._seed(epoch), **options)
        runtime = Runtime(self.device, self.memory, self._seed(epoch))
        try:
            chosen = replace(self._chosen, **labels)
            return made.with_metrics(**measured(made, embeddings, chosen, runtime))
        except BatchplanError as error:  # a training does not end for its figures
            _LOGGER.warning("epoch %d: its plan was not measured (%s)", epoch, error)
            return made

    def _random(self, epoch: int) -> Plan:
        """Return random batches, in which groups and known answers are in different batches as in
        planned ones."""
        options = {**self.options, **self._chosen.at_epoch(self.files.first(epoch), self._epochs)}
        planner = self.planner
        if not self.blind:
            planner = RANDOM
            names = ("group_column", *_IDS, *_OF_ANY_ROWS)
            options = {name: self.options.get(name) for name in names}
            # the batch size per device, unlike the batching's
            options |= {**asdict(self.batching), "batch_size": self._chosen.batch_size}
        options["guard"] = False  # only ids and groups are known
        seed = self._seed(epoch)
        drawn = plan(
            Embeddings.alike(self.num_rows), planner=planner, seed=seed, device="cpu", **options
        )
        facts = {**drawn.metadata.options, "guard": self.blind and self._chosen.guard}
        facts |= {_TURN: turn} if (turn := self.turn(epoch)) else {}
        metadata = replace(drawn.metadata, fingerprint=None, options=facts)  # of no data
        return Plan(drawn.rows, drawn.batch_offsets, metadata)

    def _labels_of(self, rows: Int64Array, epoch: int) -> dict[str, str]:
        """Write the label table of some rows, if there is one, and the answers that all rows have
        in it; return the files as options."""
        if (table := self.options.get("label_table")) is None:
            return {}
        import pyarrow as pa  # on use, since samplers need only NumPy
        import pyarrow.parquet as pq

        from batchplan.data.known import read_known, texts_of
        from batchplan.data.labels import read_labels

        alike = Embeddings.alike(self.num_rows)
        labels = {name: read_labels(name, alike, table) for name in self._columns}
        tables = {"label_table": pa.table({name: own.take(rows) for name, own in labels.items()})}
        pair = self._chosen.anchor_id, self._chosen.positive_id
        if None not in pair:  # a row that has been trained on answers anchors of the rest, too
            ids = [texts_of(labels[name]) for name in pair]
            if (listed := self.options.get("known")) is not None:
                both = zip(ids, read_known(located(listed)), strict=True)
                ids = [pa.concat_arrays(side) for side in both]
            tables["known"] = pa.table([*ids], names=["anchor", "document"]).drop_null()
        paths = {name: self.files.part_path(epoch, name, 0).with_suffix(".parquet")
                 for name in tables}  # fmt: skip
        write_files({path: partial(pq.write_table, tables[name]) for name, path in paths.items()})
        return {name: str(path) for name, path in paths.items()}

    @property
    def _columns(self) -> list[str]:
        """The columns of groups and ids that the options name."""
        options = self._chosen
        named = [options.group_column, *(getattr(options, name) for name in _IDS[:2])]
        named += options.negative_id or []
        return [name for name in named if name is not None]

    def _mega_batches(self, embeddings: Embeddings, options: PartitionOptions) -> int:
        """Return the number of mega-batches of the plans in the folder. For the first plan it is
        chosen by its vectors."""
        if (newest := self.newest()) is not None:
            kept = newest.metadata.options.get("mega_batches")
            if isinstance(kept, int):
                return kept
        return count_mega_batches(embeddings, options, Runtime(self.device, self.memory, self.seed))

    def _checked(self) -> Any:
        """Return the options of the planner, after all were checked."""
        planner, options = self.planner, self.options
        if planner not in PLANNERS:
            raise InputError(f"planner: got {planner!r}, expected one of {', '.join(PLANNERS)}")
        kind = PLANNERS[planner].options
        check_names(options, kind, planner)
        chosen = kind(**options)
        if clock := [name for name in chosen.at_epoch(0, self._epochs) if name in options]:
            raise InputError(
                f"{clock[0]}: got {options[clock[0]]!r:.80}, but each plan gets its epoch's; "
                "leave it out"
            )
        if chosen.makes_table():
            raise InputError(f"{planner}: makes a table of negatives; pass as_batches=True")
        label_table = bool(options.get("label_table"))
        may_be_random = (
            chosen.makes_partition()
            and not options.get("source_column")
            and (label_table or not any(map(options.get, ("group_column", *_IDS))))
        )
        of_all = sorted(named_paths(chosen).keys() - {*_OF_ANY_ROWS})  # files of all rows
        usual = min(1.0, (self.epochs or 2) / 2) if may_be_random and planner != RANDOM else 0.0
        if of_all or self.files.every > 1:
            usual //= 1
        self._random_epochs = usual if self.random_epochs is None else float(self.random_epochs)
        if (self._random_epochs or self.planned_epochs is not None) and not may_be_random:
            raise InputError(
                f"random epochs: got {planner}, expected a planner that uses each row once, no "
                "source_column, and a label_table with a group_column or ids; or plan all epochs"
            )
        if self._random_epochs % 1 and (of_all or self.files.every > 1):
            raise InputError(
                f"random epochs: got {self._random_epochs} with {', '.join(of_all) or 'every'}, "
                "expected a whole number, as a part of an epoch is planned; or leave that out"
            )
        return chosen
