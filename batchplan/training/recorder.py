"""Records which rows each training step saw, for `batchplan verify-consumption`."""

import os
from collections.abc import Iterator
from typing import Any

from batchplan.errors import InputError
from batchplan.training.arguments import checked
from batchplan.training.rows import Wrapper, number
from batchplan.training.sampler import plan_of
from batchplan.training.trace_writer import TraceWriter


class Recorder(TraceWriter):
    """Writes the rows of each step to ``trace.RANK.jsonl``, one line per step.

        recorder = Recorder("trace")
        for batch in recorder.wrap(loader):
            train_step(model, batch)

    A line is in the file before its step begins, so that a hang or a kill loses none. A run that
    starts again appends to the file. All processes record into a folder that they share.

    Args:
        folder: created if it is missing. Use a new one for every run.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        self._epoch = 0

    @checked
    def wrap(self, loader: Any, *, epoch: int | None = None, step: int | None = None) -> "Recorded":
        """Return the batches of a loader without the column ``batchplan_row``, whose rows are
        recorded.

        The number of a row is its place in the data set of a DataLoader. If it is not, or for
        other loaders, see `batchplan.training.with_rows`. Wrap what the loop iterates over, after
        accelerate prepared it.

        Args:
            loader: the loader as the training loop takes it.
            epoch: of the first pass; by default ``loader.epoch``, or one more than in the
                last pass, from 0. A run that starts again must pass it.
            step: of the first batch of the first pass, if the loader begins in the middle of an
                epoch; by default ``loader.steps``, or 0.

        Raises:
            InputError: a place in the data set may not be the row number, or batches have no
                column.
            OutputError: the trace cannot be written.
        """
        number(loader)
        return Recorded(self, loader, epoch, step)

    def attach(self, trainer: Any) -> None:
        """Record the training steps of a Trainer of transformers, sentence-transformers or
        Lightning, before it trains. For Lightning, call `with_rows` on the data set.

        Raises:
            InputError: another kind of trainer.
        """
        if hasattr(trainer, "get_train_dataloader"):
            from batchplan.training.transformers import record
        elif hasattr(trainer, "fit_loop"):
            from batchplan.training.lightning import record
        else:
            raise InputError(
                f"trainer: got a {type(trainer).__name__}, expected a Trainer of transformers or "
                "lightning; for other loops, iterate over recorder.wrap(loader)"
            )
        record(self, trainer)

    def _begin(self, epoch: int | None) -> int:
        """Return the epoch of a pass that begins."""
        if self._stream is None:
            self.start()
        chosen = self._epoch if epoch is None else epoch
        self._epoch = chosen + 1
        return chosen


class Recorded(Wrapper):
    """A loader whose batches are recorded; see `Recorder.wrap`. It has the loader's attributes."""

    def __init__(
        self, recorder: Recorder, loader: Any, epoch: int | None, step: int | None
    ) -> None:
        super().__init__(loader)
        self._recorder, self._begin = recorder, (epoch, step)

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Any]:
        loader, recorder = self._inner, self._recorder
        (epoch, step), self._begin = self._begin, (None, None)
        epoch = recorder._begin(getattr(loader, "epoch", None) if epoch is None else epoch)
        step = getattr(loader, "steps", 0) if step is None else step
        for batch in loader:
            yield recorder.take(batch, epoch, step, plan_of(loader))
            step += 1
        recorder.end(epoch, step)
