"""float16 vectors of all rows, of which each process embeds or records a share."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.files.scratch import scratch_array
from batchplan.training.folder import PlanFolder

if TYPE_CHECKING:
    import torch  # on use below, since samplers need only NumPy

Int64Array = NDArray[np.int64]
Embed = Callable[[Int64Array], Any]

_LATE = 2  # steps whose copies from a GPU may be under way
_AT_ONCE = 1 << 13  # rows that ``embed`` is asked for at a time, at most

_LOGGER = logging.getLogger(__name__)


class Vectors:
    """The vectors that a plan is made from. All processes call `collect`; that of rank 0 gets them.

    Parts travel through files in the folder of the plans, which all processes share anyway: no
    collective of torch.distributed must wait for them, and a restart finds those that are whole.

    Args:
        files: the folder of the plans.
        num_rows: N, rows of the data set.
        embed: see `EpochPlans`.
        rank, world_size: of this process.
        timeout: seconds that a process waits for another one.
        recorded: whether training steps record vectors.
    """

    def __init__(
        self,
        files: PlanFolder,
        num_rows: int,
        embed: Embed,
        rank: int,
        world_size: int,
        timeout: float,
        *,
        recorded: bool,
    ) -> None:
        self._files, self._num_rows, self._embed = files, num_rows, embed
        self._rank, self._world_size, self._timeout = rank, world_size, timeout
        self._steps = StepVectors(num_rows)
        self._recorded = recorded
        self._sides: list[NDArray[np.float16]] = []
        self._met = np.zeros(num_rows if rank == 0 else 0, bool)

    def record(self, rows: Any, x: Any, y: Any = None) -> None:
        """Keep the vectors of a training step; see `EpochPlans.record`."""
        if not self._recorded:
            raise InputError(
                'record: the plans are made from fresh vectors; pass embeddings="training"'
            )
        self._steps.record(rows, x, y)

    def collect(self, epoch: int) -> list[NDArray[np.float16]]:
        """The vectors of all rows, one or two (N, d) arrays, in the process of rank 0; [] in the
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
            _save(paths[self._rank], share[: calls[number].asked], sides)
        if self._rank == 0:
            for number in range(len(calls)):
                self._gather(epoch, number)
        return self._sides

    def _exchange(self, epoch: int) -> Int64Array:
        """Hand the recorded vectors to rank 0; the rows whose vectors it lacks, int64 (n,)."""
        wanted = self._files.rows_path(epoch)
        _save(self._paths(epoch, "steps")[self._rank], *self._steps.take())
        if self._rank == 0:
            self._gather(epoch, "steps")
            missing = np.flatnonzero(~self._met)
            write_files({wanted: lambda stream: np.save(stream, missing)})
            return missing
        self._files.wait_for(wanted, epoch, 0, self._timeout)
        return np.asarray(np.load(wanted, allow_pickle=False), np.int64)

    def _paths(self, epoch: int, number: int | str) -> list[Path]:
        return [self._files.part_path(epoch, number, rank) for rank in range(self._world_size)]

    def _gather(self, epoch: int, number: int | str) -> None:
        """Take over the parts of all processes of one call, the highest rank last."""
        for rank, path in enumerate(self._paths(epoch, number)):
            self._files.wait_for(path, epoch, rank, self._timeout)
            part = np.load(path, mmap_mode="r", allow_pickle=False)
            sides = [part[name] for name in part.dtype.names if name != "row"]
            if not self._sides and len(part):
                shape = self._num_rows, sides[0].shape[1]
                self._sides = [scratch_array(shape, np.float16) for _ in sides]
            for kept, side in zip(self._sides, sides, strict=False):
                if kept.shape[1:] != side.shape[1:]:
                    raise InputError(
                        f"embed: returned vectors of {side.shape[1]} numbers in the process of "
                        f"rank {rank}, expected {kept.shape[1]}, as in the others"
                    )
                kept[part["row"]] = side
            self._met[part["row"]] = True

    def _embedded(self, rows: Int64Array) -> list[NDArray[np.float16]]:
        import torch

        with torch.no_grad():
            vectors = self._embed(rows)
        sides = vectors if isinstance(vectors, tuple | list) else (vectors,)
        if len(sides) not in (1, 2):
            raise InputError(f"embed: returned {len(sides)} arrays, expected one or two")
        arrays = [half(side).numpy() for side in sides]
        require_vectors("embed", rows, arrays)
        return arrays


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


class StepVectors:
    """The vectors of training steps, on the CPU as float16.

    Args:
        num_rows: N, rows of the data set.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._kept: list[tuple[Int64Array, list[NDArray[np.float16]]]] = []
        self._copies: deque[tuple[torch.cuda.Event, Any, list[torch.Tensor]]] = deque()

    def record(self, rows: Any, x: Any, y: Any = None) -> None:
        """Keep the vectors of a step; see `EpochPlans.record`."""
        import torch

        on_gpu = any(isinstance(part, torch.Tensor) and part.is_cuda for part in (rows, x, y))
        sides = [half(side) for side in (x, y) if side is not None]
        if isinstance(rows, torch.Tensor):
            rows = rows.to("cpu", non_blocking=True)
        if not on_gpu:
            self._keep(rows, sides)
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._copies.append((event, rows, sides))
        self._settle(_LATE)

    def take(self) -> tuple[Int64Array, list[NDArray[np.float16]]]:
        """The rows and vectors of the steps since the last call, in the order of the steps."""
        self._settle(0)
        kept, self._kept = self._kept, []
        rows = [np.zeros(0, np.int64), *(rows for rows, _ in kept)]
        sides = zip(*(sides for _, sides in kept), strict=True)
        return np.concatenate(rows), [np.concatenate(side) for side in sides]

    def _settle(self, late: int) -> None:
        """Keep the vectors of all but the last steps, whose copies from a GPU may be under way."""
        while len(self._copies) > late:
            event, rows, sides = self._copies.popleft()
            event.synchronize()
            self._keep(rows, sides)

    def _keep(self, rows: Any, sides: Sequence[torch.Tensor]) -> None:
        numbers, arrays = np.asarray(rows), [side.numpy() for side in sides]
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InputError(
                f"rows: got shape {numbers.shape} of {numbers.dtype}, expected integers (n,), the "
                "places of the rows in the data set"
            )
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self._num_rows:
            wrong = numbers[(numbers < 0) | (numbers >= self._num_rows)][0]
            raise InputError(
                f"rows: got {wrong}, expected numbers from 0 to {self._num_rows - 1}; take them "
                "from batchplan.training.with_rows of the data set that is planned"
            )
        require_vectors("vectors", numbers, arrays, self._kept[0][1] if self._kept else arrays)
        copies = [array.copy() for array in arrays]  # the step may change its own
        self._kept.append((numbers.astype(np.int64), copies))


def require_vectors(
    what: str, rows: NDArray[Any], sides: Sequence[NDArray[np.float16]], like: Sequence[Any] = ()
) -> None:
    """Require a finite vector for each row.

    Args:
        what: what the message begins with.
        rows: int (n,), for the message.
        sides: arrays that should be (n, d).
        like: arrays whose number and d they should have; else those of the first one.

    Raises:
        InputError: they are not.
    """
    like = like or sides
    dim = like[0].shape[-1]
    if len(sides) != len(like) or any(side.shape != (len(rows), dim) for side in sides):
        got = " and ".join(str(side.shape) for side in sides)
        raise InputError(
            f"{what}: got {got} for {len(rows)} rows, expected {len(like)} of shape "
            f"({len(rows)}, {dim}); return or pass x and y as the loss takes them"
        )
    for name, side in zip("xy", sides, strict=False):
        finite = np.isfinite(side).all(1)
        if not finite.all():
            raise InputError(
                f"{name}: row {rows[~finite][0]} has NaN or values beyond 65504, the largest "
                f"float16, as {int((~finite).sum())} of {len(rows)} rows; look at the loss, or "
                "normalize the vectors"
            )


def half(side: Any) -> torch.Tensor:
    """Vectors as float16 on the CPU, where they arrive later if they are on a GPU."""
    import torch

    if not isinstance(side, torch.Tensor):
        with np.errstate(over="ignore"):  # `require_vectors` says so
            return torch.from_numpy(np.asarray(side).astype(np.float16))
    return side.detach().to(torch.float16).to("cpu", non_blocking=True)


def _save(path: Path, rows: Int64Array, sides: Sequence[NDArray[np.float16]]) -> None:
    """Save rows and their vectors as one array with fields."""
    kinds = [(name, "<f2", side.shape[1:]) for name, side in zip("xy", sides, strict=False)]
    part = np.empty(len(rows), [("row", "<i8"), *kinds])
    part["row"] = rows
    for name, side in zip("xy", sides, strict=False):
        part[name] = side
    write_files({path: lambda stream: np.save(stream, part)})
