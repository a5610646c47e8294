"""Planned batches in a lightning.Trainer.

data = PlannedData(dataset, embed=embed, batch_size=64)
trainer = Trainer(use_distributed_sampler=False, reload_dataloaders_every_n_epochs=1)
trainer.fit(model, data)
"""

import os
from collections.abc import Iterator, Mapping
from functools import wraps
from typing import Any, Unpack

from lightning.pytorch import Callback, LightningDataModule
from torch.utils.data import DataLoader, Dataset

from batchplan.errors import InputError
from batchplan.keywords import EpochKeywords
from batchplan.plans.plan import Plan
from batchplan.training.checks import (
    check_same_everywhere,
    digest_of,
    length_of,
    warn_of_new_order,
)
from batchplan.training.epochs import EpochPlans
from batchplan.training.runs import agree_on_run, folder_of
from batchplan.training.sampler import PlanBatchSampler, plan_of
from batchplan.training.text_columns import ids_of
from batchplan.training.trace_writer import TraceWriter
from batchplan.training.vectors import Embed, in_evaluation
from batchplan.typing import Int64Array

_FLAGS = {
    "use_distributed_sampler": (False, "would deal the parts of a device out again"),
    "reload_dataloaders_every_n_epochs": (1, "would train every epoch on the plan of the first"),
}


class PlannedData(LightningDataModule):
    """A data module that trains on one plan, or plans each epoch with the current model.

    Pass ``use_distributed_sampler=False`` and ``reload_dataloaders_every_n_epochs=1`` to the
    Trainer. The plans of each run get a folder of their own, named by the time of its start.
    Checkpoints name it, so that a run that resumes finds its plans. Columns of ids and texts are
    read from the data set as for transformers.

    Args:
        dataset: the data set to train on.
        plan: a plan for as many devices as the Trainer has, or its path; None to plan each epoch.
        embed: returns the vectors of rows; see `EpochPlans`. The module is in evaluation mode, in
            the precision of the Trainer.
        folder: where to save the folders of runs, which all machines must share; by default
            ``_plans`` in the ``default_root_dir`` of the Trainer.
        loader: options of the DataLoader, such as ``collate_fn`` and ``num_workers``.
        options: other arguments of `EpochPlans`, such as ``embeddings`` and ``batch_size``.

    Raises:
        InputError: neither a plan nor ``embed``, or a data set without a length; and from the
            Trainer, if its flags would undo a plan, or the plan is for another number of devices.
    """

    def __init__(
        self,
        dataset: Any,
        plan: Plan | str | os.PathLike[str] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        embed: Embed | None = None,
        loader: Mapping[str, Any] | None = None,
        **options: Unpack[EpochKeywords],
    ) -> None:
        super().__init__()
        if (plan is None) != (embed is not None):
            raise InputError("plan: pass either a plan, or embed to plan each epoch")
        if plan is not None and options:
            raise InputError(f"options: got {', '.join(options)} with a plan; leave out either")
        length_of(dataset)
        if plan is not None:
            warn_of_new_order(dataset)
        self._dataset, self._loader = dataset, dict(loader or {})
        self._options: dict[str, Any] = {**options}
        self._plan: Any = plan
        self._folder: Any = folder
        self._state: Any = None  # of the checkpoint that this run resumes from
        self._run = ""  # the name of its folder
        self._embed: Any = embed
        self._plans: EpochPlans | None = None
        self._sampler: PlanBatchSampler | None = None

    @property
    def plans(self) -> EpochPlans:
        """The plans of all epochs, which ``record`` the vectors of training steps.

        Raises:
            InputError: the training has not begun, or has one plan.
        """
        if self._plans is None:
            raise InputError("plans: not known before the training, or a single plan was passed")
        return self._plans

    def setup(self, stage: str) -> None:
        """Check the flags of the Trainer."""
        if stage != "fit":
            return
        self.teardown(stage)  # of a run that was interrupted
        trainer: Any = self.trainer
        for flag, (expected, why) in _FLAGS.items():
            got = getattr(trainer, flag, getattr(trainer._accelerator_connector, flag, None))
            if got != expected:
                raise InputError(f"{flag}={got}: {why}; pass Trainer({flag}={expected})")

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the part of this device in the plan of the epoch.

        Raises:
            InputError: the plan is for another number of devices or rows.
        """
        trainer: Any = self.trainer
        if self._sampler is None:
            place = {"rank": trainer.global_rank, "world_size": trainer.world_size}
            source: Any = self._plan
            if source is None:
                epochs = trainer.max_epochs  # None or -1 if there is no such limit
                known: dict[str, Any] = {"epochs": epochs if epochs and epochs > 0 else None}
                known |= {"data": digest_of(self._dataset)}
                self._run = agree_on_run(self._state)
                folder = folder_of(self._run, self._folder, trainer.default_root_dir)
                planner = self._options.get("planner", "partition")
                ids = ids_of(self._dataset, folder, self._options, planner)
                source = self._plans = EpochPlans(
                    folder, embed=self._vectors, num_rows=len(self._dataset), **place,
                    **{**known, **self._options, **ids},
                )  # fmt: skip
            self._sampler = PlanBatchSampler(source, **place, dataset=self._dataset)
            check_same_everywhere(self._sampler, self._dataset)
        if self._plans is not None and (trainer.ckpt_path is not None or trainer.global_step):
            self._plans.resume()
        self._sampler.set_epoch(trainer.current_epoch)
        return ResumableLoader(self._dataset, batch_sampler=self._sampler, **self._loader)

    def teardown(self, stage: str) -> None:
        """End the run."""
        if stage == "fit" and self._plans is not None:
            self._plans.end()
            self._plans = self._sampler = self._state = None

    def state_dict(self) -> dict[str, Any]:
        """Return the name of the folder of the run."""
        return {"run": self._run}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the plans of the run that saved a checkpoint."""
        self._state = state_dict

    def _vectors(self, rows: Int64Array) -> Any:
        trainer: Any = self.trainer
        with in_evaluation(trainer.lightning_module), trainer.precision_plugin.forward_context():
            return self._embed(rows)


class ResumableLoader(DataLoader[Any]):
    """A DataLoader of a `PlanBatchSampler` that can resume within an epoch: Lightning stores its
    ``state_dict``. It counts the steps that training took, not those that workers prefetched."""

    batch_sampler: PlanBatchSampler

    def __init__(self, dataset: Dataset[Any], **options: Any) -> None:
        super().__init__(dataset, **options)
        self._steps = self._start = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.batch_sampler.start_at(self._start)
        self._steps, self._start = self._start, 0
        for batch in super().__iter__():
            self._steps += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the sampler at the step of the training."""
        place = {"epoch": self.batch_sampler.epoch, "position": self._steps}
        return {**self.batch_sampler.state_dict(), **place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where `state_dict` was called; raises as the sampler's."""
        self.batch_sampler.load_state_dict(state)
        self._steps = self._start = self.batch_sampler.position


class _RecordedSteps(Callback):
    """Passes the batches that ``training_step`` gets to a `Recorder`."""

    def __init__(self, recorder: TraceWriter) -> None:
        self._recorder = recorder

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        self._recorder.start()
        train = pl_module.training_step

        @wraps(train)
        def training_step(batch: Any, *others: Any) -> Any:
            place = trainer.current_epoch, trainer.fit_loop.batch_idx
            plan = plan_of(trainer.train_dataloader)
            return train(self._recorder.take(batch, *place, plan), *others)

        pl_module.training_step = training_step

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_last_batch:
            self._recorder.end(trainer.current_epoch, trainer.fit_loop.batch_idx + 1)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        vars(pl_module).pop("training_step", None)


def record(recorder: TraceWriter, trainer: Any) -> None:
    """`Recorder.attach` for a lightning.Trainer."""
    trainer.callbacks.append(_RecordedSteps(recorder))
