"""float16 vectors of all rows, of which each process embeds or records a share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.training.folder import PlanFolder
from batchplan.training.steps import StepVectors, half, require_vectors, save_part
from batchplan.training.store import Store

Int64Array = NDArray[np.int64]
Embed = Callable[[Int64Array], Any]

STEPS = "steps"  # the parts of the recorded steps, which are numbered otherwise
_AT_ONCE = 1 << 13  # rows that ``embed`` is asked for at a time, at most

_LOGGER = logging.getLogger(__name__)


class Vectors:
    """The vectors that a plan is made from. All processes call `collect`; that of rank 0 gets them.

    Parts travel through files in the folder of the plans, which all processes share anyway: no
    collective of torch.distributed must wait for them, and a restart finds those that are whole.

    Args:
        files: the folder of the plans.
        num_rows: N, rows of the data set.
        embed, same: see `EpochPlans`.
        rank, world_size: of this process.
        timeout: seconds that a process waits for another one.
        recorded: whether training steps record vectors.

    Attributes:
        store: the vectors, in the process of rank 0.
        complete: whether all rows have vectors, of which only newer ones are still exchanged.
    """

    def __init__(
        self,
        files: PlanFolder,
        num_rows: int,
        embed: Embed,
        same: Callable[[], Sequence[Int64Array]] | None,
        rank: int,
        world_size: int,
        timeout: float,
        *,
        recorded: bool,
    ) -> None:
        self._files, self._num_rows, self._embed, self._same = files, num_rows, embed, same
        self._rank, self._world_size, self._timeout = rank, world_size, timeout
        self._steps = StepVectors(num_rows)
        self._recorded = recorded
        self.store = Store(num_rows if rank == 0 else 0)
        self.complete = False

    def record(self, rows: Any, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of a training step; see `EpochPlans.record`."""
        if not self._recorded:
            raise InputError(
                'record: the plans are made from fresh vectors; pass embeddings="training"'
            )
        self._steps.record(rows, x, y, *negatives)

    def collect(self, epoch: int) -> list[NDArray[np.float16]]:
        """The vectors of all rows, (N, d) for each side, in the process of rank 0; [] in the
        others.

        With recorded steps, those of each row's last step; rows that no step has met, and all rows
        without recorded steps, are embedded now.

        Raises:
            InputError: ``embed`` returns something else than vectors of the rows.
            ResourceError: another process failed or has ended.
        """
        rows = np.arange(self._num_rows)
        if self._recorded:
            rows = self._exchange(epoch)
        calls = list(share_calls(len(rows), self._rank, self._world_size))
        for number in range(len(calls)):
            paths = self._paths(epoch, number)
            # From before a restart, of all processes: none embeds alone, even if rank 0 has
            # planned from them meanwhile and removed them.
            if all(path.exists() for path in paths) or self._files.plan_path(epoch).exists():
                continue
            _LOGGER.info("epoch %d: embedding part %d of %d", epoch, number + 1, len(calls))
            share = rows[calls[number].rows]
            sides = [side[: calls[number].asked] for side in self._embedded(share)]
            save_part(paths[self._rank], [(share[: calls[number].asked], sides)])
        if self._rank == 0:
            for number in range(len(calls)):
                self._gather(epoch, number)
            self.find_same()
            self.store.share()
        self.complete = True
        return self.store.sides

    def find_same(self) -> None:
        """Find the rows that share a vector, once, in the process of rank 0."""
        if self._same is not None and self.store.same is None:
            self.store.keep_same(self._same())

    def handed_over(self, epoch: int) -> Callable[[], None]:
        """Take the vectors of the steps since the last call; what is returned saves them for the
        plan of an epoch."""
        path = self._files.part_path(epoch, STEPS, self._rank)
        return partial(save_part, path, self._steps.take())

    def _exchange(self, epoch: int) -> Int64Array:
        """Hand the recorded vectors to rank 0; the rows whose vectors it lacks, int64 (n,)."""
        wanted = self._files.rows_path(epoch)
        self.handed_over(epoch)()
        if self._rank == 0:
            self._gather(epoch, STEPS)
            missing = np.flatnonzero(~self.store.met)
            write_files({wanted: lambda stream: np.save(stream, missing)})
            return missing
        self._files.wait_for(wanted, epoch, 0, self._timeout, or_plan=True)
        try:
            return np.asarray(np.load(wanted, allow_pickle=False), np.int64)
        except FileNotFoundError:  # rank 0 lacked nothing, and has planned and removed it
            return np.zeros(0, np.int64)

    def _paths(self, epoch: int, number: int | str) -> list[Path]:
        return [self._files.part_path(epoch, number, rank) for rank in range(self._world_size)]

    def _gather(self, epoch: int, number: int | str) -> None:
        gather(self.store, self._files, epoch, number, self._world_size, self._timeout)

    def _embedded(self, rows: Int64Array) -> list[NDArray[np.float16]]:
        import torch

        with torch.no_grad():
            vectors = self._embed(rows)
        sides = vectors if isinstance(vectors, tuple | list) else (vectors,)
        if not sides:
            raise InputError("embed: returned no arrays, expected one for each side")
        arrays = [half(side).numpy() for side in sides]
        require_vectors("embed", rows, arrays)
        return arrays


def gather(
    store: Store, files: PlanFolder, epoch: int, number: int | str, world_size: int, timeout: float
) -> None:
    """Take over the parts of all processes of one call, or of their steps, the highest rank last.

    Raises:
        InputError: they do not fit together.
        ResourceError: another process failed, has ended, or takes longer than ``timeout`` seconds.
    """
    for rank in range(world_size):
        path = files.part_path(epoch, number, rank)
        files.wait_for(path, epoch, rank, timeout)
        store.put(np.load(path, mmap_mode="r", allow_pickle=False), rank)


class Call(NamedTuple):
    """One call of ``embed``.

    Attributes:
        rows: int64 (size,), places among the rows that are to be embedded.
        asked: how many of them are asked for; the others repeat the last one.
    """

    rows: Int64Array
    asked: int


def share_calls(count: int, rank: int, world_size: int) -> Iterator[Call]:
    """What a process embeds: as many calls of the same size in all processes, since forward passes
    of models sharded over the processes are collective."""
    if not count:
        return
    share = -(-count // world_size)
    number = -(-share // _AT_ONCE)
    size = -(-share // number)
    for call in range(number):
        start = (call * world_size + rank) * size
        yield Call(
            np.minimum(np.arange(start, start + size), count - 1), np.clip(count - start, 0, size)
        )
