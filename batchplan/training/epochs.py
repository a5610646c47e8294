"""A plan for every epoch, made from the model as it is then, by the first of all processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.files.atomic import remove
from batchplan.files.remote import no_url
from batchplan.options import check_names, named, recorded
from batchplan.planners import PLANNERS, plan
from batchplan.planners.common.choice import SIZING, count_mega_batches
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.batching import Batching
from batchplan.plans.plan import Plan
from batchplan.plans.steps import cut_order
from batchplan.plans.validation import Int64Array
from batchplan.runtime import Runtime
from batchplan.training.folder import PlanFolder
from batchplan.training.vectors import Embed, Vectors

Mode = Literal["fresh", "training"]

_RANDOM = "random"


class EpochPlans:
    """Plans in a folder, ``plan-0000.npz`` for epoch 0 and so on.

        plans = EpochPlans(
            "plans", embed=lambda rows: embed(model, dataset, rows), num_rows=len(dataset),
            batch_size=64,
        )
        sampler = PlanBatchSampler(plans, rank=rank, world_size=world_size)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)

    Every process embeds its share of the rows; that of rank 0 plans and saves, and the others wait
    until the file is there. They meet in the folder, which all must share: planning may take longer
    than a collective of torch.distributed may wait. A run that resumes uses the plans that exist,
    so that an epoch goes on with its own. A run that begins with epoch 0 must find no plans: use a
    new folder for every run. The folder also holds ``run.json``, which describes the run; see
    `PlanFolder`.

    Args:
        folder: created if it is missing.
        planner: a name in `batchplan.planners.PLANNERS`.
        embed: called in every process with row numbers, int64 (n,), in as many calls of the same n
            everywhere, so that it may run a model of FSDP, whose forward passes are
            collective. Returns their vectors: an (n, d) array or tensor, or a pair of them. They
            are kept as float16.
        num_rows: N, rows of the data set.
        embeddings: ``training`` plans from the vectors of the training steps, which `record` gets,
            and embeds only rows that no step has met: all before the first epoch and after a
            restart. The vectors are up to an epoch old. ``fresh`` embeds all rows for each plan.
        same: called in the process of rank 0 after the embedding; for each side, int64 (N,), the
            row whose vector each row shares, such as that of an equal text.
        data: any text that names the data set; a run that resumes must pass the same.
        planned_epochs: how many epochs are planned; the batches of those that follow are random,
            but for ``group_column``, and nothing is embedded for them. None for all. On small
            data, too many epochs of hard batches teach rows by heart (docs/training.md).
        every: epochs that share a plan.
        draws: plans that are made from one call of ``embed``, each with its own seed, which draws
            other mega-batches.
        parts: plans that make up a pass over the data: each epoch here is a part of it, planned
            from the model as it is then, without the rows of the parts before. For planners with
            the option ``exclude``, such as ``rwr`` with ``num_batches``, the steps of a part.
        avoid: plans before the next one whose pairs of rows it gives less weight (`partition`), as
            far as they are in the folder.
        keep: plans that are kept, the newest ones; to resume in the middle of an epoch takes its
            own plan.
        seed: of the plan of epoch e is ``seed + e``.
        rank, world_size: of this process, from torch.distributed if they are left out, or from
            the variables ``RANK`` and ``WORLD_SIZE`` that torchrun sets.
        timeout: seconds that the others wait for a plan.
        device, memory: see `batchplan.Runtime`.
        options: those of the planner, such as ``batch_size``. Where they leave the number of
            mega-batches of `partition` open, or to ``auto``, it is chosen for the first plan, as
            ``batchplan plan`` does, and kept: how good the model is at the start tells how soon it
            learns the rows by heart.

    Attributes:
        batching: how the rows of every plan are cut.

    Raises:
        InputError: an unknown planner or option, or one that makes no plan.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        planner: str = "partition",
        *,
        embed: Embed,
        num_rows: int,
        embeddings: Mode = "fresh",
        same: Callable[[], Sequence[Int64Array]] | None = None,
        data: str | None = None,
        planned_epochs: int | None = None,
        every: int = 1,
        draws: int = 1,
        parts: int = 1,
        avoid: int = 0,
        keep: int = 10,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        timeout: float = 6 * 3600,
        device: str = "auto",
        memory: int | None = None,
        **options: Any,
    ) -> None:
        if planner not in PLANNERS:
            raise InputError(f"planner: got {planner!r}, expected one of {', '.join(PLANNERS)}")
        if embeddings not in get_args(Mode):
            raise InputError(f"embeddings: got {embeddings!r}, expected fresh or training")
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
        self.rank, devices = process_place(rank, world_size)
        options["world_size"] = devices
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
        if planned_epochs is not None and (
            planned_epochs < 1
            or parts > 1
            or not chosen.makes_partition()
            or options.get("source_column")
            or (options.get("group_column") and not options.get("label_table"))
        ):
            raise InputError(
                f"planned epochs: got {planned_epochs} with {planner} and parts={parts}, expected "
                "at least 1, whole passes, a planner that uses each row once, no source_column, by "
                "which random batches would not go, and a label_table beside a group_column, as "
                "nothing is embedded for them"
            )
        if chosen.makes_table():
            raise InputError(f"{planner}: makes a table of negatives; pass as_batches=True")
        self.folder, self.planner, self.num_rows = no_url(folder), planner, num_rows
        self._files = PlanFolder(self.folder, every, self.rank)
        self._vectors: Vectors | None = Vectors(
            self._files,
            num_rows,
            embed,
            self.rank,
            devices,
            timeout,
            recorded=embeddings != "fresh",
        )
        self._same = same
        self.every, self.keep, self.seed, self.timeout = every, keep, seed, timeout
        self.draws, self.parts, self.avoid = draws, parts, avoid
        self.planned_epochs = planned_epochs
        self.batching: Batching = chosen.batching()
        self._partitions = chosen.makes_partition()
        self._settings: dict[str, Any] = {"device": device, "memory": memory, **options}
        self._run = {
            "planner": planner,
            "seed": seed,
            "every": every,
            "parts": parts,
            **recorded(chosen),
        }
        known = {"num_rows": num_rows, "data": data}
        self._run |= {name: value for name, value in known.items() if value is not None}
        for path in named(chosen, "path"):  # the same files may have other names when it resumes
            self._run.pop(path, None)
        self._to_size: PartitionOptions | None = None
        if isinstance(chosen, PartitionOptions) and (
            chosen.mega_batches == "auto" or not SIZING & options.keys()
        ):
            self._to_size = chosen
        self._loaded: tuple[int, Plan] | None = None
        self._require_parts()
        if self.rank == 0:
            self._files.clear_errors()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_vectors": None, "_same": None, "_loaded": None}  # no models

    def path(self, epoch: int) -> Path:
        """The file of an epoch's plan, whether or not it exists."""
        return self._files.plan_path(epoch)

    def saved(self) -> list[Path]:
        """The plans in the folder, by epoch."""
        return self._files.saved()

    def batch_sizes(self) -> Int64Array | None:
        """Rows of each batch of every plan, int64 (batches,); None for planners that draw batches,
        where that is not known before the first plan."""
        if not self._partitions:
            return None
        return np.diff(cut_order(np.arange(self.num_rows), self.batching, None)[1])

    def num_batches(self) -> int:
        """Batches of every plan. If they are not known before, those of the newest plan in the
        folder, or of that of epoch 0, which is made."""
        if (sizes := self.batch_sizes()) is not None:
            return len(sizes)
        newest = self._newest()
        return len(self.for_epoch(0) if newest is None else newest)

    def existing(self, epoch: int) -> Plan:
        """The plan of an epoch that was made before.

        Raises:
            InputError: it is gone, or is another plan.
        """
        path = self.path(epoch)
        self.resume()
        if self.rank == 0:
            self._files.begin(epoch, self._run)
        if not path.exists():
            raise InputError(
                f"{path}: does not exist, but training goes on in the middle of its epoch; restore "
                "the file, or resume from a checkpoint at the end of an epoch"
            )
        return self._load(epoch)

    def for_epoch(self, epoch: int) -> Plan:
        """The plan of an epoch, counted from 0; made if there is none.

        Raises:
            InputError: the folder holds the plans of another run, or ``embed`` returns what cannot
                be planned.
            ResourceError: in the other processes, that of rank 0 failed, has ended, or took longer
                than ``timeout``.
            OutputError: the plan could not be saved.
        """
        first = epoch - epoch % self.every
        path = self.path(epoch)
        try:
            if self.rank == 0:
                self._files.begin(epoch, self._run)
            else:
                self._files.join(epoch, self.timeout)
            if not path.exists():
                if self.rank == 0:
                    self._files.forget_error(epoch)
                sides = self._collect(epoch) if self._is_planned(first) else []
                if self.rank == 0:
                    self._make(epoch, sides)
                self._files.wait_for(path, epoch, 0, self.timeout)
        except BaseException as error:
            self._files.save_error(epoch, error)
            raise
        return self._load(epoch)

    def record(self, rows: Any, x: Any, y: Any = None) -> None:
        """Keep the vectors of a training step for the next plan. Call it in each process for each
        step, with ``embeddings="training"``. Vectors on a GPU are copied while the step goes on.

        Args:
            rows: integers (n,), the rows of the data set; see `batchplan.training.with_rows`. Of a
                row that is there twice the last vectors count.
            x, y: (n, d), tensors on any device or arrays, of any dtype of floats; y None if there
                is only one matrix. They are not changed, and no gradient passes.

        Raises:
            InputError: rows that are not of the data set, another shape than before, or NaN or
                values beyond float16, of this step or of one of the last two on a GPU.
        """
        self._known_vectors.record(rows, x, y)

    def resume(self) -> None:
        """Go on with the run whose plans are in the folder. To load the state of a sampler or a
        loader does so; a loop that begins at a later epoch than 0 need not call it."""
        self._files.resume()

    def end(self) -> None:
        """End the run, so that another process may use the folder. Also done when the process
        ends."""
        self._files.end()
        self._loaded = None

    def _load(self, epoch: int) -> Plan:
        first = epoch - epoch % self.every
        if self._loaded is None or self._loaded[0] != first:
            path = self.path(epoch)
            plan = Plan.load(path, num_rows=self.num_rows)
            self._require_own(plan, path, first)
            self._loaded = first, plan
        return self._loaded[1]

    def _require_own(self, plan: Plan, path: Path, first: int) -> None:
        metadata = plan.metadata
        expected = {
            "planner": self.planner if self._is_planned(first) else _RANDOM,
            "seed": self.seed + first,
            **asdict(self.batching),
        }
        for name, value in expected.items():
            if (got := getattr(metadata, name)) != value:
                raise InputError(
                    f"{path}: its {name.replace('_', ' ')} is {got}, expected {value}: a plan of "
                    "another run; use another folder, or remove the plans in this one"
                )

    @property
    def _known_vectors(self) -> Vectors:
        if self._vectors is None:
            raise InputError("embed: was lost when these plans were pickled; make them again")
        return self._vectors

    def _collect(self, epoch: int) -> list[NDArray[np.float16]]:
        """The vectors of all rows, in the process of rank 0."""
        sides = self._known_vectors.collect(epoch)
        if self._same is not None and self.rank == 0:
            for side, firsts in zip(sides, self._same(), strict=False):
                others = np.flatnonzero(firsts != np.arange(len(firsts)))
                side[others] = side[firsts[others]]
        return sides

    def _make(self, epoch: int, sides: Sequence[NDArray[np.float16]]) -> None:
        """Save the plan of an epoch from the vectors of all rows; then remove what is old."""
        first = epoch - epoch % self.every
        planned = self._is_planned(first)
        newest = self._plan(epoch, sides) if planned else self._draw(first)
        self._files.remove_parts(of=epoch)
        older = [saved for saved in self.saved() if saved.name <= newest.name]
        for old in older[: -self.keep]:
            remove(old)

    def _plan(self, epoch: int, sides: Sequence[NDArray[np.float16]]) -> Path:
        """Save the plans that these vectors are for; the path of the last of them."""
        embeddings = Embeddings.from_arrays(*sides)
        settings = self._settings
        if earlier := range(epoch - epoch % self.parts, epoch):
            used = [str(self.path(part)) for part in earlier]
            settings = {**settings, "exclude": used, "reembedded": True}
        if self._to_size is not None:
            count = self._mega_batches(embeddings, self._to_size)
            settings = {**settings, "mega_batches": count, "mega_batch_rows": None}
        together = self.every * self.draws
        end = epoch - epoch % together + together
        if self.planned_epochs is not None:
            end = min(end, self.planned_epochs)
        firsts = range(epoch - epoch % self.every, end, self.every)
        for first in reversed(firsts):  # that of this epoch, for which others wait, comes last
            if not self.path(first).exists():
                own = {**settings, "seed": self.seed + first}
                if near := self._to_avoid(first, firsts):
                    own["avoid"] = near
                plan(embeddings, self.planner, **own).save(self.path(first))
        return self.path(firsts[-1])

    def _draw(self, first: int) -> Path:
        """Save random batches, which part the groups of the planned ones; their path."""
        alike = Embeddings.from_arrays(np.ones((self.num_rows, 1), np.float16))
        groups: dict[str, Any] = {
            name: self._settings.get(name) for name in ("group_column", "label_table")
        }
        options = {**asdict(self.batching), **groups, "guard": False}
        drawn = plan(alike, _RANDOM, seed=self.seed + first, device="cpu", **options)
        metadata = replace(drawn.metadata, fingerprint=None)  # of no data in particular
        Plan(drawn.rows, drawn.batch_offsets, metadata).save(self.path(first))
        return self.path(first)

    def _is_planned(self, first: int) -> bool:
        return self.planned_epochs is None or first < self.planned_epochs

    def _newest(self) -> Plan | None:
        """The plan of the last epoch that was asked for, or else of the last in the folder."""
        if self._loaded is not None:
            return self._loaded[1]
        saved = self.saved()
        return Plan.load(saved[-1]) if saved else None

    def _mega_batches(self, embeddings: Embeddings, options: PartitionOptions) -> int:
        """How many the plans in the folder have; for the first one, what its vectors tell."""
        if (newest := self._newest()) is not None:
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
        return [str(path) for near in before + after if (path := self.path(near)).exists()]

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
                f"{self.num_rows} rows to the last part, expected {least} to {most}{alike}; change "
                "parts or num_batches, or pass tail='drop'"
            )


def process_place(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """The rank of this process and the number of processes: as they are passed, or as
    torch.distributed has them, or as torchrun says."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        usual = distributed.get_rank(), distributed.get_world_size()
    else:
        usual = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return usual[0] if rank is None else rank, usual[1] if world_size is None else world_size
