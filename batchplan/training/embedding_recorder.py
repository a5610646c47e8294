"""`EmbeddingRecorder`: the vectors that training steps compute anyway, kept for the next plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.files.scratch import scratch_array
from batchplan.training.epochs import process_place

_LATE = 2  # steps whose copies from a GPU may be under way
_AT_ONCE = 1 << 26  # bytes of vectors that a process sends at a time


class EmbeddingRecorder:
    """Keeps the vectors of each row from the last step that trained on it, so that planning needs
    no pass over the data: the free embeddings of GRIT (ECCV 2022).

        recorder = EmbeddingRecorder(len(dataset), embed=lambda rows: embed(model, dataset, rows))
        plans = EpochPlans("plans", embed=recorder.embeddings, batch_size=64)
        sampler = PlanBatchSampler(plans)
        loader = DataLoader(with_rows(dataset), batch_sampler=sampler)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for batch, rows in loader:
                x, y = model(batch)
                recorder.record(rows, x, y)
                ...
            recorder.gather()

    The vectors are of the model as it was at the row's step, with its dropout. A row that a later
    epoch leaves out, as ``tail="drop"`` does, keeps its last ones.

    Args:
        num_rows: N, rows of the data set.
        embed: called with the rows that no step has met, int64 (n,) in ascending order: all before
            the first epoch and after a restart. Returns their vectors, an (n, d) array or tensor,
            or a pair of them. Without it such rows are an error.
        on_disk: keep the vectors in temporary files instead of memory, in the folder that TMPDIR
            names: N times d float16 for each side.

    Raises:
        InputError: fewer than two rows.
    """

    def __init__(
        self,
        num_rows: int,
        embed: Callable[[NDArray[np.int64]], Any] | None = None,
        *,
        on_disk: bool = False,
    ) -> None:
        if num_rows < 2:
            raise InputError(f"num rows: got {num_rows}, expected at least 2, which a batch needs")
        self._embed, self._on_disk = embed, on_disk
        self._sides: list[NDArray[np.float16]] = []
        self._met = np.zeros(num_rows, bool)
        self._new = np.zeros(num_rows, bool)  # since the last `gather`
        self._copies: deque[tuple[torch.cuda.Event, Any, list[Any]]] = deque()
        self._group: Any = None

    def record(self, rows: Any, x: Any, y: Any = None) -> None:
        """Keep the vectors of a step, on the CPU as float16. Vectors on a GPU are copied while the
        step goes on.

        Args:
            rows: integers (n,), the rows of the data set; see `batchplan.training.with_rows`. Of a
                row that is there twice the last vectors count.
            x, y: (n, d), tensors on any device or arrays, of any dtype of floats; y None if there
                is only one matrix. They are not changed, and no gradient passes.

        Raises:
            InputError: rows that are not of the data set, another shape than before, or NaN or
                values beyond float16, of this step or of one of the last two on a GPU.
        """
        on_gpu = any(isinstance(part, torch.Tensor) and part.is_cuda for part in (rows, x, y))
        sides = [_half(side) for side in (x, y) if side is not None]
        if isinstance(rows, torch.Tensor):
            rows = rows.to("cpu", non_blocking=True)
        if not on_gpu:
            self._keep(rows, sides)
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._copies.append((event, rows, sides))
        self._settle(_LATE)

    def gather(self) -> None:
        """Send what the processes of torch.distributed recorded to that of rank 0. Call it in all
        of them after each epoch; of a row that several recorded, the highest rank's vectors count.
        With one process it does nothing.

        Raises:
            InputError: vectors of the last steps, as `record`.
        """
        self._settle(0)
        rank, devices = process_place()
        if devices > 1:
            if not distributed.is_initialized():
                raise InputError(
                    f"gather: {devices} processes were started, but torch.distributed does not "
                    "know them; call init_process_group first"
                )
            if self._group is None:
                self._group = distributed.new_group(backend="gloo")  # NCCL takes no CPU tensors
            if rank:
                self._send()
            else:
                for other in range(1, devices):
                    self._receive(other)
        self._new[:] = False

    def embeddings(self) -> Embeddings:
        """The vectors of all rows, those that no step has met from ``embed``, for `EpochPlans`.

        They are views: plan before the next step records.

        Raises:
            InputError: rows that no step has met, without ``embed``, or whose vectors have another
                shape; steps that were not gathered from several processes.
        """
        self._settle(0)
        if self._new.any() and process_place()[1] > 1:
            raise InputError(
                "embeddings: other processes recorded steps that are not here; call gather() in "
                "all processes after each epoch"
            )
        missing = np.flatnonzero(~self._met)
        if missing.size:
            self._fill(missing)
        return Embeddings.from_arrays(*self._sides)

    def _fill(self, missing: NDArray[np.int64]) -> None:
        if self._embed is None:
            raise InputError(
                f"embeddings: no step has met {missing.size} of {len(self._met)} rows, the first "
                f"of them row {missing[0]}; pass embed=, which embeds such rows, or train on all "
                "rows before the first plan"
            )
        vectors = self._embed(missing)
        sides = vectors if isinstance(vectors, tuple | list) else (vectors,)
        self._keep(missing, [_half(side) for side in sides])
        self._new[missing] = False

    def _settle(self, late: int) -> None:
        """Keep the vectors of all but so many of the steps whose copies were under way."""
        while len(self._copies) > late:
            event, rows, sides = self._copies.popleft()
            event.synchronize()
            self._keep(rows, sides)

    def _keep(self, rows: Any, sides: Sequence[torch.Tensor]) -> None:
        arrays = [side.numpy() for side in sides]
        numbers = np.asarray(rows)
        self._require_fitting(numbers, arrays)
        if not self._sides:
            make = scratch_array if self._on_disk else np.empty
            shape = len(self._met), arrays[0].shape[1]
            self._sides = [make(shape, np.float16) for _ in arrays]
        for kept, array in zip(self._sides, arrays, strict=True):
            kept[numbers] = array
        self._met[numbers] = self._new[numbers] = True

    def _require_fitting(self, rows: NDArray[Any], sides: list[NDArray[np.float16]]) -> None:
        total = len(self._met)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise InputError(
                f"rows: got shape {rows.shape} of {rows.dtype}, expected integers (n,), the places "
                "of the rows in the data set"
            )
        if rows.size and not 0 <= rows.min() <= rows.max() < total:
            wrong = rows[(rows < 0) | (rows >= total)][0]
            raise InputError(
                f"rows: got {wrong}, expected numbers from 0 to {total - 1}; take them from "
                "batchplan.training.with_rows of the data set that is planned"
            )
        dim = self._sides[0].shape[1] if self._sides else sides[0].shape[-1]
        count = len(self._sides) or len(sides)
        if len(sides) != count or any(side.shape != (len(rows), dim) for side in sides):
            got = " and ".join(str(side.shape) for side in sides)
            raise InputError(
                f"vectors: got {got} for {len(rows)} rows, expected {count} of shape "
                f"({len(rows)}, {dim}), as in the steps before; pass x and y as the loss takes them"
            )
        for name, side in zip("xy", sides, strict=False):
            finite = np.isfinite(side).all(1)
            if not finite.all():
                raise InputError(
                    f"{name}: row {rows[~finite][0]} has NaN or values beyond 65504, the largest "
                    f"float16, as {int((~finite).sum())} rows of this step; look at the loss, or "
                    "normalize the vectors"
                )

    def _send(self) -> None:
        rows = np.flatnonzero(self._new)
        shape = (len(self._sides), self._sides[0].shape[1]) if rows.size else (0, 0)
        distributed.send(torch.tensor([rows.size, *shape]), 0, self._group)
        for start, stop in _blocks(rows.size, *shape):
            part = rows[start:stop]
            for array in (part, *(side[part] for side in self._sides)):
                distributed.send(torch.from_numpy(array), 0, self._group)

    def _receive(self, rank: int) -> None:
        header = torch.empty(3, dtype=torch.int64)
        distributed.recv(header, rank, self._group)
        count, sides, dim = header.tolist()
        for start, stop in _blocks(count, sides, dim):
            rows = torch.empty(stop - start, dtype=torch.int64)
            vectors = [torch.empty(stop - start, dim, dtype=torch.float16) for _ in range(sides)]
            for tensor in (rows, *vectors):
                distributed.recv(tensor, rank, self._group)
            self._keep(rows, vectors)


def _half(side: Any) -> torch.Tensor:
    """As float16 on the CPU, where it arrives later if it is on a GPU."""
    if not isinstance(side, torch.Tensor):
        with np.errstate(over="ignore"):  # the check of finite values says so
            return torch.from_numpy(np.asarray(side).astype(np.float16))
    return side.detach().to(torch.float16).to("cpu", non_blocking=True)


def _blocks(rows: int, sides: int, dim: int) -> list[tuple[int, int]]:
    step = max(1, _AT_ONCE // max(1, 2 * sides * dim))
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]
