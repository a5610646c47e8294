"""Collects the vectors of all rows, of which each process embeds or records a share."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.files.npy import write_npy
from batchplan.training.folder import PlanFolder
from batchplan.training.step_vectors import StepVectors, half, require_vectors, save_part
from batchplan.training.store import Store
from batchplan.typing import Int64Array

Embed = Callable[[Int64Array], Any]
Mode = Literal["fresh", "training"]

STEPS = "steps"  # names the parts of recorded steps; other parts have the number of a call
_AT_ONCE = 1 << 13  # rows that a call of ``embed`` gets, at most
_PASS = 0.27  # of the time of an epoch: all rows of MiniLM-L6, see docs/training.md
_FEW = 0.1  # of the rows, of which no warning is worth it

_LOGGER = logging.getLogger(__name__)


class Vectors:
    """The vectors that a plan is made from. All processes call `collect`; rank 0 gets them.

    Parts travel through files in the folder of the plans, which all processes share anyway. So no
    collective of torch.distributed must wait for them, and a restart finds those that are whole.

    Args:
        files: the folder of the plans.
        num_rows: N, rows of the data set.
        embed, same, embeddings: see `EpochPlans`.
        cosine: whether vectors of zeros are refused.

    Attributes:
        store: the vectors, in the process of rank 0.
        complete: whether all rows have vectors. Then only newer ones are exchanged.
        embedded: number of rows that this process has embedded for the epoch.
        told: whether the cost of embedding was logged.
    """

    def __init__(
        self,
        files: PlanFolder,
        num_rows: int,
        embed: Embed,
        same: Callable[[], Sequence[Int64Array]] | None,
        embeddings: Mode,
        *,
        cosine: bool = False,
    ) -> None:
        self._files, self._num_rows, self._embed, self._same = files, num_rows, embed, same
        self._cosine, self.embeddings = cosine, embeddings
        self.embedded, self.told = 0, False
        self.release()

    def release(self) -> None:
        """Begin without vectors, or give up all."""
        self._steps = StepVectors(self._num_rows, cosine=self._cosine)
        self.store = Store(self._num_rows if self._files.rank == 0 else 0)
        self.complete = False

    def record(self, rows: Any, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of a training step; see `EpochPlans.record`."""
        if self.embeddings == "fresh":
            raise InputError(
                'record: the plans are made from fresh vectors; pass embeddings="training"'
            )
        self._steps.record(rows, x, y, *negatives)

    def collect(self, epoch: int, rows: Int64Array | None = None) -> list[NDArray[np.float16]]:
        """Return the vectors of all rows, (N, d) for each side, in the process of rank 0; [] in the
        others.

        With recorded steps, these are the vectors of each row's last step. Rows that no step has
        met, and all rows without recorded steps, are embedded now.

        Args:
            epoch: that is planned.
            rows: int64 (n,), the rows whose vectors are wanted in the middle of the epoch. Other
                vectors are undefined.

        Raises:
            InputError: ``embed`` does not return vectors of the rows.
            ResourceError: another process failed or has ended.
        """
        files = self._files
        plan = files.plan_path(epoch) if rows is None else files.rest_path(epoch)
        wanted = np.arange(self._num_rows) if rows is None else rows
        missing = self._exchange(epoch, wanted, plan) if self.embeddings == "training" else wanted
        calls = enumerate(share_calls(len(missing), files.rank, files.world_size))
        parts = [(f"{'' if rows is None else 'rest'}{number}", call) for number, call in calls]
        if files.rank == 0 and not self.told and len(missing) > _FEW * self._num_rows:
            self.told = True
            warn_of_cost(epoch, len(missing), self._num_rows)
        for number, call in parts:
            paths = [files.part_path(epoch, number, rank) for rank in range(files.world_size)]
            # All processes skip a call together, also if rank 0 has planned and removed its parts:
            # one alone would wait in the model for the others.
            if all(path.exists() for path in paths) or plan.exists():
                continue
            share = missing[call.rows]
            sides = [side[: call.asked] for side in self._embedded(share)]
            save_part(paths[files.rank], [(share[: call.asked], sides)])
            self.embedded += call.asked
        if files.rank == 0:
            for number, _ in parts:
                gather(self.store, files, epoch, number)
            if rows is None:
                self.find_same()
                self.store.share()
        self.complete |= rows is None
        return self.store.sides

    def find_same(self) -> None:
        """Find the rows that share a vector, once, in the process of rank 0."""
        if self._same is not None and self.store.same is None:
            self.store.keep_same(self._same())

    def handed_over(self, epoch: int) -> Callable[[], None]:
        """Take the vectors of the steps since the last call. Returns a function that saves them for
        the plan of an epoch."""
        path = self._files.part_path(epoch, STEPS, self._files.rank)
        return partial(save_part, path, self._steps.take())

    def _exchange(self, epoch: int, rows: Int64Array, plan: Path) -> Int64Array:
        """Hand the recorded vectors to rank 0. Returns some of the rows without vectors there,
        int64 (n,)."""
        wanted = self._files.rows_path(epoch)
        self.handed_over(epoch)()
        if self._files.rank == 0:
            gather(self.store, self._files, epoch, STEPS)
            missing = rows[~self.store.met[rows]]
            write_files({wanted: lambda stream: write_npy(stream, missing)})
            return missing
        self._files.wait_for(wanted, epoch, 0, instead=plan)
        try:
            return np.asarray(np.load(wanted, allow_pickle=False), np.int64)
        except FileNotFoundError:  # rank 0 lacked nothing, and has planned and removed it
            return np.zeros(0, np.int64)

    def _embedded(self, rows: Int64Array) -> list[NDArray[np.float16]]:
        import torch

        with torch.no_grad():
            vectors = self._embed(rows)
        sides = vectors if isinstance(vectors, tuple | list) else (vectors,)
        if not sides:
            raise InputError("embed: returned no arrays, expected one for each side")
        arrays = [half(side).numpy() for side in sides]
        require_vectors("embed", rows, arrays, cosine=self._cosine)
        return arrays


def warn_of_cost(epoch: int, rows: int, num_rows: int) -> None:
    """Log how much of the time of an epoch it takes to embed some of its rows, if there are any."""
    if rows:
        _LOGGER.warning(
            "epoch %d: embedding %d of %d rows takes about %.0f%% of an epoch",
            epoch, rows, num_rows, 100 * _PASS * rows / num_rows,
        )  # fmt: skip


def gather(store: Store, files: PlanFolder, epoch: int, part: int | str) -> None:
    """Take over a part from all processes, the highest rank last: of a call, or of their steps.

    Raises:
        InputError: the vectors do not fit together.
        ResourceError: as `PlanFolder.wait_for`.
    """
    for rank in range(files.world_size):
        path = files.part_path(epoch, part, rank)
        files.wait_for(path, epoch, rank)
        store.put(np.load(path, mmap_mode="r", allow_pickle=False), rank)


class Call(NamedTuple):
    """One call of ``embed``.

    Attributes:
        rows: int64 (size,), places among the rows that are to be embedded.
        asked: number of rows that are needed. The others repeat the last one.
    """

    rows: Int64Array
    asked: int


def share_calls(count: int, rank: int, world_size: int) -> Iterator[Call]:
    """Yield the calls of ``embed`` in a process. All processes make the same number of calls of the
    same size, since forward passes of models sharded over the processes are collective."""
    if not count:
        return
    share = -(-count // world_size)
    number = -(-share // _AT_ONCE)
    size = -(-share // number)
    for call in range(number):
        start = (call * world_size + rank) * size
        rows = np.minimum(np.arange(start, start + size), count - 1)
        yield Call(rows, int(np.clip(count - start, 0, size)))


@contextmanager
def in_evaluation(model: Any) -> Iterator[None]:
    """Put a torch model in evaluation mode, and back in the mode that it had."""
    training = model.training
    try:
        model.eval()
        yield
    finally:
        model.train(training)
