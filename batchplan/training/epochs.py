"""A plan for every epoch, made from the model as it is then, by the first of all processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.remote import no_url
from batchplan.plans.batching import Batching
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step, cut_order
from batchplan.runtime import usable_processors
from batchplan.training.ahead import Ahead
from batchplan.training.folder import PlanFolder
from batchplan.training.planner import EpochPlanner
from batchplan.training.vectors import Embed, Vectors

Int64Array = NDArray[np.int64]
Mode = Literal["fresh", "training"]


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
            collective. Returns their vectors: an (n, d) array or tensor, or a tuple of them: x, y
            and mined negatives. They are kept as float16.
        num_rows: N, rows of the data set.
        embeddings: ``training`` plans from the vectors of the training steps, which `record` gets,
            and embeds only rows that no step has met: all before the first epoch and after a
            restart. The vectors are up to an epoch old. ``fresh`` embeds all rows for each plan.
        ahead: with ``training``, the share of a plan's steps that are left when a process next to
            the training starts to make the next plan, such as 0.1. The plan depends on the steps
            before, not on the time. The process plans on the CPU, unless ``device`` names another
            one. None makes each plan when its epoch begins.
        ahead_threads: of that process; None for half of the processors.
        epochs: of the run. None is planned ahead after the last one; without it, the plan of one
            more epoch is begun, and given up when the run ends.
        same: called in the process of rank 0 after the embedding; for each side, int64 (N,), the
            row whose vector each row shares, such as that of an equal text.
        data: any text that names the data set; a run that resumes must pass the same.
        planned_epochs: how many epochs are planned. The batches of later ones are random, but
            keep groups in different batches, and nothing is embedded for them. None for all. On
            small data, a model overfits in too many epochs of hard batches (docs/training.md).
        random_epochs: how many epochs have random batches before the first plan. With
            ``embeddings="training"``, their steps record the vectors of that plan, so that no
            epoch needs a pass over the data.
        every: epochs that share a plan.
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
        ahead: float | None = None,
        ahead_threads: int | None = None,
        epochs: int | None = None,
        same: Callable[[], Sequence[Int64Array]] | None = None,
        data: str | None = None,
        planned_epochs: int | None = None,
        random_epochs: int = 0,
        every: int = 1,
        keep: int = 10,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        timeout: float = 6 * 3600,
        device: str = "auto",
        memory: int | None = None,
        **options: Any,
    ) -> None:
        if embeddings not in get_args(Mode):
            raise InputError(f"embeddings: got {embeddings!r}, expected fresh or training")
        if ahead is not None and (embeddings == "fresh" or not 0 < ahead < 1):
            raise InputError(
                f"ahead: got {ahead} with embeddings={embeddings!r}, expected a share above 0 and "
                'below 1, such as 0.1, with embeddings="training"'
            )
        threads = max(1, usable_processors() // 2) if ahead_threads is None else ahead_threads
        if threads < 1 or (ahead is None and ahead_threads is not None):
            raise InputError(
                f"ahead_threads: got {ahead_threads} with ahead={ahead}, expected a number of at "
                "least 1 with ahead"
            )
        self.rank, devices = process_place(rank, world_size)
        self.folder, self.num_rows, self.timeout = no_url(folder), num_rows, timeout
        self._files = PlanFolder(self.folder, every, self.rank)
        self._planner = EpochPlanner(
            self._files, planner, num_rows, every=every, keep=keep, seed=seed,
            planned_epochs=planned_epochs, random_epochs=random_epochs, device=device,
            memory=memory, options={**options, "world_size": devices},
        )  # fmt: skip
        self.batching: Batching = self._planner.batching
        self._vectors: Vectors | None = Vectors(
            self._files,
            num_rows,
            embed,
            same,
            self.rank,
            devices,
            timeout,
            recorded=embeddings != "fresh",
        )
        self._ahead: Ahead | None = None
        if ahead is not None:
            process = threads, self.rank, devices, timeout
            self._ahead = Ahead(ahead, epochs, self._files, self._vectors, self._planner, *process)
        self._run = self._planner.described()
        known = {"num_rows": num_rows, "data": data}
        self._run |= {name: value for name, value in known.items() if value is not None}
        self._loaded: tuple[Path, Plan] | None = None
        if self.rank == 0:
            self._files.clear_errors()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_vectors": None, "_ahead": None, "_loaded": None}  # no models

    def path(self, epoch: int) -> Path:
        """The file of an epoch's plan, whether or not it exists."""
        return self._files.plan_path(epoch)

    def saved(self) -> list[Path]:
        """The plans in the folder, by epoch."""
        return self._files.saved()

    def batch_sizes(self) -> Int64Array | None:
        """Rows of each batch of every plan, int64 (batches,); None for planners that draw batches,
        where that is not known before the first plan."""
        if not self._planner.partitions:
            return None
        return np.diff(cut_order(np.arange(self.num_rows), self.batching, None)[1])

    def num_batches(self) -> int:
        """Batches of every plan. If they are not known before, those of the newest plan in the
        folder, or of that of epoch 0, which is made."""
        if (sizes := self.batch_sizes()) is not None:
            return len(sizes)
        newest = self._loaded[1] if self._loaded is not None else self._planner.newest()
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
        return self._begun(epoch)

    def for_epoch(self, epoch: int) -> Plan:
        """The plan of an epoch, counted from 0; made if there is none.

        Raises:
            InputError: the folder holds the plans of another run, or ``embed`` returns what cannot
                be planned.
            ResourceError: in the other processes, that of rank 0 failed, has ended, or took longer
                than ``timeout``.
            OutputError: the plan could not be saved.
        """
        path = self.path(epoch)
        try:
            if self.rank == 0:
                self._files.begin(epoch, self._run)
            else:
                self._files.join(epoch, self.timeout)
            if self._ahead is not None and self._ahead.finish(epoch):
                self._files.wait_for(path, epoch, 0, self.timeout)
            elif not path.exists():
                if self.rank == 0:
                    self._files.forget_error(epoch)
                planned = self._planner.is_planned(epoch)
                sides = self._known_vectors.collect(epoch) if planned else []
                if self.rank == 0:
                    self._known_vectors.find_same()
                    self._planner.make(epoch, sides)
                    self._files.remove_parts(of=epoch)
                    self._planner.remove_old(epoch)
                self._files.wait_for(path, epoch, 0, self.timeout)
        except BaseException as error:
            self._files.save_error(epoch, error)
            raise
        return self._begun(epoch)

    def record(self, rows: Any, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of a training step for the next plan, with ``embeddings="training"``.
        Call it in each process once for each step. Vectors on a GPU are copied while it goes on.

        Args:
            rows: integers (n,), the rows of the data set; see `batchplan.training.with_rows`. Of a
                row that is there twice the last vectors count.
            x, y: (n, d), tensors on any device or arrays, of any dtype of floats; y None if there
                is only one matrix. They are not changed, and no gradient passes.
            negatives: the vectors of mined negatives, likewise, as many as ``embed`` returns.

        Raises:
            InputError: rows that are not of the data set, another shape than before, or NaN or
                values beyond float16, of this step or of one of the last two on a GPU.
        """
        self._known_vectors.record(rows, x, y, *negatives)
        if self._ahead is not None:
            self._ahead.step()

    def resume(self) -> None:
        """Go on with the run whose plans are in the folder. To load the state of a sampler or a
        loader does so; a loop that begins at a later epoch than 0 need not call it."""
        self._files.resume()

    def end(self) -> None:
        """End the run, so that another process may use the folder. Also done when the process
        ends."""
        if self._ahead is not None:
            self._ahead.cancel()
        self._files.end()
        self._loaded = None

    def _begun(self, epoch: int) -> Plan:
        """The plan of an epoch that begins, or goes on."""
        path = self.path(epoch)
        if self._loaded is None or self._loaded[0] != path:
            plan = Plan.load(path, num_rows=self.num_rows)
            self._require_own(plan, path, epoch)
            self._loaded = path, plan
        plan = self._loaded[1]
        if self._ahead is not None:
            each = batches_per_step(self.batching.world_size, self.batching.scope)
            self._ahead.begin(epoch, len(plan) // each)
        return plan

    def _require_own(self, plan: Plan, path: Path, epoch: int) -> None:
        for name, value in self._planner.expected(epoch).items():
            if (got := getattr(plan.metadata, name)) != value:
                raise InputError(
                    f"{path}: its {name.replace('_', ' ')} is {got}, expected {value}: a plan of "
                    "another run; use another folder, or remove the plans in this one"
                )

    @property
    def _known_vectors(self) -> Vectors:
        if self._vectors is None:
            raise InputError("embed: was lost when these plans were pickled; make them again")
        return self._vectors


def process_place(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """The rank of this process and the number of processes: as they are passed, or as
    torch.distributed has them, or as torchrun says."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        usual = distributed.get_rank(), distributed.get_world_size()
    else:
        usual = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return usual[0] if rank is None else rank, usual[1] if world_size is None else world_size
