"""The vectors of training steps, and the files in which processes hand vectors over."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.atomic import write_files
from batchplan.files.npy import write_npy
from batchplan.training.arguments import row_numbers
from batchplan.typing import Int64Array

if TYPE_CHECKING:
    import torch  # on use below, since samplers need only NumPy

Step = tuple[Int64Array, Sequence[NDArray[np.float16]]]  # rows (n,), and sides (n, d)

_LATE = 2  # steps whose copies from a GPU may be under way


class StepVectors:
    """The float16 vectors of training steps, on the CPU.

    Args:
        num_rows: N, rows of the data set.
        cosine: whether x and y need a direction.
    """

    def __init__(self, num_rows: int, *, cosine: bool = False) -> None:
        self._num_rows, self._cosine = num_rows, cosine
        self._kept: list[Step] = []
        self._count = 0  # rows of `_kept`
        self._copies: deque[tuple[torch.cuda.Event, Any, list[torch.Tensor]]] = deque()

    def record(self, rows: Any, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of a step; see `EpochPlans.record`."""
        import torch

        if x is None:
            raise InputError("x: got None, expected the vectors of the step, (n, d)")
        given = (rows, x, y, *negatives)
        on_gpu = any(isinstance(part, torch.Tensor) and part.is_cuda for part in given)
        sides = [half(side) for side in given[1:] if side is not None]
        if isinstance(rows, torch.Tensor) and rows.is_cuda:
            rows = rows.to("cpu", non_blocking=True)
        if not on_gpu:
            self._keep(rows, sides)
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._copies.append((event, rows, sides))
        self._settle(_LATE)

    def take(self) -> list[Step]:
        """Return the rows and vectors of each step since the last call."""
        self._settle(0)
        kept, self._kept, self._count = self._kept, [], 0
        return kept

    def _settle(self, late: int) -> None:
        """Keep the vectors of all but the last steps, whose copies from a GPU may be under way."""
        while len(self._copies) > late:
            event, rows, sides = self._copies.popleft()
            event.synchronize()
            self._keep(rows, sides)

    def _keep(self, rows: Any, sides: Sequence[torch.Tensor]) -> None:
        numbers, arrays = row_numbers(rows, self._num_rows), [side.numpy() for side in sides]
        like = self._kept[0][1] if self._kept else arrays
        require_vectors("vectors", numbers, arrays, like, cosine=self._cosine)
        copies = [array.copy() for array in arrays]  # the step may change its own
        self._kept.append((numbers, copies))
        self._count += len(numbers)
        if self._count > 2 * self._num_rows:
            self._keep_last()

    def _keep_last(self) -> None:
        """Keep only the last vectors of each row, as many epochs may share a plan."""
        rows = np.concatenate([rows for rows, _ in self._kept])
        last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
        sides = zip(*(sides for _, sides in self._kept), strict=True)
        self._kept = [(rows[last], [np.concatenate(side)[last] for side in sides])]
        self._count = len(last)


def require_vectors(
    what: str,
    rows: NDArray[Any],
    sides: Sequence[NDArray[np.float16]],
    like: Sequence[Any] = (),
    *,
    cosine: bool = False,
) -> None:
    """Require a finite vector for each row.

    Args:
        what: how the message begins.
        rows: int (n,), for the message.
        sides: arrays that should be (n, d).
        like: arrays that should have the same number and d; by default the first of ``sides``.
        cosine: whether zeros are refused in x and y, which have no cosine similarity. For mined
            negatives, they are a missing one.

    Raises:
        InputError: the arrays differ from this, or have NaN or infinite values.
    """
    like = like or sides
    dim = like[0].shape[-1] if like[0].ndim else 0
    if len(sides) != len(like) or any(side.shape != (len(rows), dim) for side in sides):
        got = " and ".join(str(side.shape) for side in sides)
        raise InputError(
            f"{what}: got {got} for {len(rows)} rows, expected {len(like)} of shape "
            f"({len(rows)}, {dim}); return or pass x and y as the loss takes them"
        )
    for name, side in zip(side_names(len(sides)), sides, strict=True):
        finite = np.isfinite(side).all(1)
        if not finite.all():
            raise InputError(
                f"{name}: row {rows[~finite][0]} has NaN or values beyond 65504, the largest "
                f"float16, as {int((~finite).sum())} of {len(rows)} rows; look at the loss, or "
                "normalize the vectors"
            )
        zero = ~side.any(1)
        if cosine and zero.any() and name in ("x", "y"):
            raise InputError(
                f"{name}: row {rows[zero][0]} has a vector of zeros, as {int(zero.sum())} of "
                f"{len(rows)} rows, for which cosine similarity is not defined; drop such rows "
                "(of empty texts?) before the training"
            )


def side_names(count: int) -> list[str]:
    """Return the names of x, y and mined negatives."""
    return ["x", "y", *(f"negative_{number}" for number in range(1, count - 1))][:count]


def half(side: Any) -> torch.Tensor:
    """Return vectors as float16 on the CPU. Those from a GPU arrive later."""
    import torch

    if not isinstance(side, torch.Tensor):
        try:
            with np.errstate(over="ignore"):  # `require_vectors` says so
                return torch.from_numpy(np.asarray(side).astype(np.float16))
        except (TypeError, ValueError) as error:
            kind = type(side).__name__
            raise InputError(f"vectors: got a {kind}, expected numbers of shape (n, d)") from error
    return side.detach().to(torch.float16).to("cpu", non_blocking=True)


def save_part(path: Path, steps: Sequence[Step]) -> None:
    """Save rows and their vectors as one array with the fields ``row`` and `side_names`.

    Args:
        path: the NPY file to write.
        steps: rows and vectors of one or more steps, in their order.
    """
    sides = list(zip(*(sides for _, sides in steps), strict=True))
    columns = dict(zip(side_names(len(sides)), sides, strict=True))
    kinds = [(name, "<f2", parts[0].shape[1:]) for name, parts in columns.items()]
    part = np.empty(sum(len(rows) for rows, _ in steps), [("row", "<i8"), *kinds])
    if steps:
        np.concatenate([rows for rows, _ in steps], out=part["row"])
    for name, parts in columns.items():
        np.concatenate(parts, out=part[name])
    write_files({path: lambda stream: write_npy(stream, part)})
