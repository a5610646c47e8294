"""A plan for every epoch of a training, made with the current model."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.remote import no_url
from batchplan.keywords import EpochOptionKeywords
from batchplan.plans.plan import BEGUN, Plan
from batchplan.plans.steps import batches_per_step, cut_order
from batchplan.runtime import Runtime
from batchplan.training.ahead import Ahead
from batchplan.training.arguments import checked
from batchplan.training.checks import process_group
from batchplan.training.figures import MEASURED, doubt
from batchplan.training.folder import PlanFolder
from batchplan.training.plan_maker import RANDOM, PlanMaker
from batchplan.training.step_vectors import require_vectors
from batchplan.training.vectors import Embed, Mode, Vectors, warn_of_cost
from batchplan.typing import Int64Array

Predict = Callable[[Int64Array, Sequence[NDArray[Any]], Int64Array], Sequence[NDArray[Any]]]

_LATE = 8  # of 8 random batches of an epoch, the last one is not waited for

_LOGGER = logging.getLogger(__name__)


class EpochPlans:
    """A plan for every epoch, in a folder: ``plan-0000.npz`` for epoch 0 and so on.

        plans = EpochPlans(
            "plans", embed=lambda rows: embed(model, dataset, rows), num_rows=len(dataset),
            batch_size=64,
        )
        sampler = PlanBatchSampler(plans, rank=rank, world_size=world_size)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)

    Every process embeds its share of the rows. Rank 0 plans and saves, and the others wait
    until the file is there. They meet in the folder, which all must share: planning may take longer
    than a collective of torch.distributed may wait. A run that resumes uses the plans that exist,
    so that an epoch goes on with its own. A run that begins with epoch 0 must find no plans: use a
    new folder for every run. The folder also has ``run.json``, which describes the run; see
    `PlanFolder`.

    Args:
        folder: created if it is missing.
        planner: a name in `batchplan.planners.PLANNERS`.
        embed: returns the vectors of rows: an (n, d) array or tensor, or a tuple of x, y and mined
            negatives. They are kept as float16. It gets row numbers, int64 (n,). All processes call
            it equally often with the same n, so that it may run a model of FSDP, whose forward
            passes are collective.
        num_rows: N, rows of the data set.
        embeddings: ``fresh`` embeds all rows for each plan. ``training`` plans from the vectors of
            the training steps, which `record` gets, and embeds only rows that no step has met: all
            before the first epoch and after a restart. The vectors are up to an epoch old.
        ahead: with ``training``, the share of a plan's steps that are left when a process next to
            the training starts to make the next plan, such as 0.1. The plan depends on the steps
            before, not on the time. The process uses half of the processors, and the CPU unless
            ``device`` names another one. None makes each plan when its epoch begins.
        epochs: number of epochs of the run, such as 1 or 1.5. Schedules such as
            ``restart="0.2:0.05"`` need it: they end with the last epoch. None is planned ahead
            after that one. Without it, one more plan is begun, and given up when the run ends.
        predict: returns vectors for the rest of an epoch that began with random batches, instead of
            ``embed``, such as `batchplan.embedding.table.TokenTable.predict`. It gets rows that
            steps have recorded, int64 (n,); the vectors of all rows, (N, d) for each side, of which
            only those are defined; and the rows whose vectors it returns, int64 (m,). Called in the
            process of rank 0.
        same: returns for each side, int64 (N,), the row whose vector each row shares, such as that
            of an equal text. Called in the process of rank 0 after the embedding.
        data: any text that names the data set. A run that resumes must pass the same.
        planned_epochs: number of planned epochs. Later ones have random batches, in which groups
            still are in different batches, and nothing is embedded for them. None plans all. On
            small data, a model overfits in too many epochs of hard batches (docs/training.md).
        random_epochs: number of epochs with random batches before the first plan. With
            ``embeddings="training"``, their steps record the vectors of that plan, so that no
            epoch needs a pass over the data. With 0.5, the first half of the batches of epoch 0 is
            random, and the rest is planned when the training gets there; see ``predict``. None:
            half of ``epochs``, at most one, if the planner and its options permit it.
        every: epochs that share a plan.
        keep: number of plans that stay, the newest ones. A run that resumes in the middle of an
            epoch needs the plan of that epoch.
        seed: the seed of the plan of epoch e is ``seed + e``.
        rank, world_size: of this process; by default from torch.distributed, or the variables
            ``RANK`` and ``WORLD_SIZE`` that torchrun sets.
        timeout: seconds that a process waits for another one.
        device, memory: see `batchplan.Runtime`.
        options: options of the planner, such as ``batch_size``. If they leave the number of
            mega-batches of `partition` open, or to ``auto``, it is chosen for the first plan, as
            ``batchplan plan`` does, and kept.

    Attributes:
        batching: how the rows of every plan are cut.
        rank: of this process.
        figures: of the planned epoch that `for_epoch` returned last, by name, for a tracker:
            ``embedding_seconds`` and ``planning_seconds``, for which this process waited,
            ``embedded_rows``, which it embedded, and those of
            `batchplan.training.figures.measured`. Empty for random batches.

    Raises:
        InputError: the planner or an option is unknown, or makes no plan.
    """

    @checked
    def __init__(
        self,
        folder: str | os.PathLike[str],
        planner: str = "partition",
        *,
        embed: Embed,
        num_rows: int,
        embeddings: Mode = "fresh",
        ahead: float | None = None,
        epochs: float | None = None,
        predict: Predict | None = None,
        same: Callable[[], Sequence[Int64Array]] | None = None,
        data: str | None = None,
        planned_epochs: int | None = None,
        random_epochs: float | None = 0,
        every: int = 1,
        keep: int = 10,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        timeout: float = 6 * 3600,
        device: str = "auto",
        memory: int | str | None = None,
        **options: Unpack[EpochOptionKeywords],
    ) -> None:
        self.rank, devices = process_place(rank, world_size)
        self.folder, self.num_rows = no_url(folder), num_rows
        self._files = PlanFolder(self.folder, every, keep, self.rank, devices, timeout)
        self._predict = predict
        self._planner = PlanMaker(
            files=self._files, planner=planner, num_rows=num_rows, seed=seed, epochs=epochs,
            planned_epochs=planned_epochs, random_epochs=random_epochs, device=device,
            memory=Runtime.of(device, memory).memory, options={**options, "world_size": devices},
        )  # fmt: skip
        self.batching = self._planner.batching
        self._vectors: Vectors | None = Vectors(
            self._files, num_rows, embed, same, embeddings, cosine=self._planner.cosine
        )
        self._ahead: Ahead | None = None
        if ahead is not None:
            self._ahead = Ahead(ahead, epochs, self._files, self._vectors, self._planner)
        named = {} if data is None else {"data": data}
        self._run = {**self._planner.described(), "num_rows": num_rows, **named}
        self._loaded: tuple[Path, Plan] | None = None
        self._timed: int | None = None  # the epoch of the seconds
        self._seconds = self._embedding_seconds = 0.0
        self.figures: dict[str, float] = {}
        self._doubted = False  # whether a warning was logged
        if self.rank == 0:
            self._files.clear_errors()

    def __getstate__(self) -> dict[str, Any]:
        models = "_vectors", "_ahead", "_predict", "_loaded"
        return {**self.__dict__, **dict.fromkeys(models)}

    @checked
    def path(self, epoch: int) -> Path:
        """Return the file of an epoch's plan, whether or not it exists."""
        return self._files.plan_path(epoch)

    def saved(self) -> list[Path]:
        """Return the plans in the folder, by epoch."""
        return self._files.saved()

    def batch_sizes(self) -> Int64Array | None:
        """Return the number of rows of each batch of every plan, int64 (batches,).

        None for planners that draw batches: their number is not known before the first plan.
        """
        if not self._planner.partitions:
            return None
        return np.diff(cut_order(np.arange(self.num_rows), self.batching, None)[1])

    def num_batches(self) -> int:
        """Return the number of batches of every plan. For planners that draw batches, the
        newest plan counts, or the plan of epoch 0, which is made."""
        if (sizes := self.batch_sizes()) is not None:
            return len(sizes)
        newest = self._loaded[1] if self._loaded is not None else self._planner.newest()
        return len(self.for_epoch(0) if newest is None else newest)

    @checked
    def existing(self, epoch: int) -> Plan:
        """Return the plan of an epoch that was made before.

        Raises:
            InputError: the plan is gone, or the folder has the plans of another run.
        """
        path = self.path(epoch)
        self.resume()
        self._files.begin(epoch, self._run)
        if not path.exists():
            raise InputError(
                f"{path}: does not exist, but training goes on in the middle of its epoch; restore "
                "the file, or resume from a checkpoint at the end of an epoch"
            )
        plan = self._begun(epoch)
        self._planner.go_on(epoch, plan)
        return plan

    def begun(self, epoch: int) -> str | None:
        """Return the digest of the plan that an epoch began with; None if it is not there."""
        path = self.path(epoch)
        return Plan.load(path, num_rows=self.num_rows).digest if path.exists() else None

    def is_undecided(self, epoch: int) -> bool:
        """Return whether `for_epoch` would refuse epoch 0 because of the plans in the folder, which
        the state of a checkpoint would show to be of this run."""
        return epoch == 0 and self._files.is_undecided()

    @checked
    def for_epoch(self, epoch: int) -> Plan:
        """Return the plan of an epoch, counted from 0. Make it if there is none.

        Raises:
            InputError: the folder has the plans of another run, or ``embed`` returns what cannot
                be planned.
            ResourceError: another process failed, has ended, or took longer than ``timeout``.
            OutputError: the plan could not be saved.
        """
        if epoch != self._timed:  # else asked for again, as by the length of a sampler
            self._timed, self._seconds, self._embedding_seconds = epoch, 0.0, 0.0
            if self._vectors is not None:
                self._vectors.embedded = 0

        def make() -> None:
            self._files.begin(epoch, self._run)
            if not (self._ahead and self._ahead.finish(epoch)) and not self.path(epoch).exists():
                warn_of_cost(epoch, self.rows_to_embed(epoch), self.num_rows)
                self._make(epoch)

        plan = self._made(epoch, self.path(epoch), make)
        planned = self._planner.is_planned(epoch) or BEGUN in plan.metadata.options
        self.figures = self._figures(plan) if planned else {}
        return plan

    def rows_to_embed(self, epoch: int) -> int:
        """Return the number of rows that will be embedded for an epoch without a plan: all, or
        those of its rest. 0 in processes but that of rank 0, if steps may have recorded vectors,
        or if this was asked before."""
        vectors, turn, rows = self._vectors, self._planner.turn(epoch), 0
        if self.rank or vectors is None or vectors.told or self.path(epoch).exists():
            return 0
        fresh = vectors.embeddings == "fresh"
        if self._planner.is_planned(epoch) and (fresh or not epoch):
            rows = self.num_rows
        elif turn and (fresh or self._predict is None):
            rows = self.num_rows - turn * self.batching.batch_size
        vectors.told = rows > 0
        return rows

    def turn(self, epoch: int) -> int | None:
        """Return the batch of an epoch from which on `for_rest` has another plan than `for_epoch`;
        None if there is none, or that plan was returned."""
        turned = self._loaded is not None and self._loaded[0] == self._files.rest_path(epoch)
        return None if turned else self._planner.turn(epoch) or None

    def for_rest(self, epoch: int) -> Plan:
        """Return the plan of an epoch whose first batches were random: these, and then planned
        ones. Make it if there is none. Raises as `for_epoch`.

        The plan depends on the vectors of all random batches but the last eighth, and at least two
        steps. So a loader may take batches before the training needs them.
        """
        path = self._files.rest_path(epoch)
        plan = self._made(epoch, path, lambda: self._make_rest(epoch))
        self.figures = self._figures(plan)
        return plan

    def _made(self, epoch: int, path: Path, make: Callable[[], object]) -> Plan:
        """Return the plan of an epoch, after the processes have made it."""
        began = time.perf_counter()
        try:
            make()
            self._files.wait_for(path, epoch, 0)
        except BaseException as error:
            self._files.save_error(epoch, error)
            raise
        plan = self._begun(epoch)
        self._seconds += time.perf_counter() - began
        return plan

    def record(self, rows: Any, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of a training step for the next plan, with ``embeddings="training"``.
        Call it in each process once for each step. Vectors on a GPU are copied in the background.

        Args:
            rows: integers (n,), the rows of the data set; see `batchplan.training.with_rows`. If a
                row occurs twice, its last vectors count.
            x, y: (n, d), tensors on any device or arrays, of any float type. y is None if there is
                only one matrix. They are not changed, and no gradient passes.
            negatives: the vectors of mined negatives, as many as ``embed`` returns.

        Raises:
            InputError: rows that are not in the data set, another shape than before, or NaN or
                values beyond float16, in this step or in one of the last two on a GPU.
        """
        if self._planner.blind:
            return
        self._known_vectors.record(rows, x, y, *negatives)
        if self._ahead is not None:
            self._ahead.step()

    def resume(self) -> None:
        """Go on with the run whose plans are in the folder. Loading the state of a sampler or a
        loader does this. A loop that begins at a later epoch than 0 need not call it."""
        self._files.resume()

    def end(self) -> None:
        """End the run, so that another process may use the folder, and give up all vectors. The
        end of the process does this too."""
        if self._ahead is not None:
            self._ahead.cancel()
        if self._vectors is not None:
            self._vectors.release()
        self._files.end()
        self._loaded = None

    def _make(self, epoch: int) -> None:
        """Collect the vectors of an epoch; in the process of rank 0, plan from them."""
        self._files.forget_error(epoch)
        planned, began = self._planner.is_planned(epoch), time.perf_counter()
        sides = self._known_vectors.collect(epoch) if planned else []
        self._embedding_seconds += time.perf_counter() - began
        if self.rank == 0:
            self._known_vectors.find_same()
            self._planner.make(epoch, sides)
            self._files.remove_parts(epoch)
            self._files.remove_old(epoch)

    def _make_rest(self, epoch: int) -> None:
        """Collect the vectors of the rest of an epoch; in the process of rank 0, plan from them."""
        files, planner, vectors = self._files, self._planner, self._known_vectors
        if files.rest_path(epoch).exists():
            return
        files.forget_error(epoch)
        began = time.perf_counter()
        plan, wanted = planner.begun(epoch)
        rows, turn = wanted, planner.turn(epoch)
        predict = self._predict if vectors.embeddings == "training" else None
        if predict is not None:
            ahead = 2 * batches_per_step(self.batching.world_size, self.batching.scope)
            late = min(max(turn // _LATE, ahead), turn // 2)
            rows = plan.rows[: plan.batch_offsets[turn - late]]
        sides = vectors.collect(epoch, rows)
        if self.rank == 0:
            if predict is None:
                sides = [side[wanted] for side in sides]
            else:
                sides = list(predict(rows, sides, wanted))
                require_vectors("predict", wanted, sides, cosine=planner.cosine)
            self._embedding_seconds += time.perf_counter() - began
            planner.make_rest(epoch, sides)
            files.remove_parts(epoch)

    def _figures(self, plan: Plan) -> dict[str, float]:
        """Return the figures of a planned epoch."""
        embedding, metrics = self._embedding_seconds, plan.metadata.metrics
        if self.rank == 0 and not self._doubted and self._planner.planner != RANDOM:
            reason = doubt(metrics, plan.metadata.batch_size, self._timed or 0)
            self._doubted = bool(reason)
            if reason:
                _LOGGER.warning("epoch %d: its plan may not be worth it: %s", self._timed, reason)
        spent = {
            "embedding_seconds": embedding,
            "planning_seconds": self._seconds - embedding,
            "embedded_rows": self._vectors.embedded if self._vectors else 0,
        }
        return spent | {name: metrics[name] for name in MEASURED if name in metrics}

    def _begun(self, epoch: int) -> Plan:
        """Return the plan of an epoch that begins, or goes on."""
        rest, path = self._files.rest_path(epoch), self.path(epoch)
        path = rest if rest.exists() else path
        if self._loaded is None or self._loaded[0] != path:
            self._loaded = path, Plan.load(path, num_rows=self.num_rows)
        plan = self._loaded[1]
        if self._ahead is not None:
            each = batches_per_step(self.batching.world_size, self.batching.scope)
            self._ahead.begin(epoch, len(plan) // each)
        return plan

    @property
    def _known_vectors(self) -> Vectors:
        if self._vectors is None:
            raise InputError("embed: was lost when these plans were pickled; make them again")
        return self._vectors


def process_place(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Return the rank of this process and the number of processes: the given numbers, or
    what torch.distributed or torchrun set."""
    if distributed := process_group():
        usual = distributed.get_rank(), distributed.get_world_size()
    else:
        names = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not all(name.isdecimal() for name in names):
            raise InputError(f"RANK and WORLD_SIZE: got {names}, expected numbers, as of torchrun")
        usual = int(names[0]), int(names[1])
    own = usual[0] if rank is None else rank
    devices = usual[1] if world_size is None else world_size
    if own >= devices:
        raise InputError(f"rank: got {own}, expected one below the world size, {devices}")
    return own, devices
