"""Planned epochs in a transformers.Trainer.

    plans = PlannedEpochs("plans", train_dataset, lambda rows: embed(model, train_dataset, rows))
    trainer = PlannedTrainer(model, args, train_dataset=train_dataset, callbacks=[plans])

with ``class PlannedTrainer(PlannedBatches, Trainer): pass``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sized
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import ceil
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import has_length, seed_worker

from batchplan.errors import InputError
from batchplan.training.epochs import EpochPlans, Mode, process_place
from batchplan.training.multi_dataset import MultiDatasetPlans
from batchplan.training.recorder import Recorder, plan_of
from batchplan.training.rows import number
from batchplan.training.sampler import ALL, PlanBatchSampler, check_loader
from batchplan.training.vectors import Embed, Int64Array

_NO_TRAINER = "plans: the trainer does not know them; pass callbacks=[plans] to it"
_STATE = "batchplan"  # the key in a checkpoint of the plan that it was trained on


class PlannedEpochs(TrainerCallback):
    """A callback that plans each epoch from the current model; `PlannedBatches` trains on it.

    A run that resumes from a checkpoint needs the plans in its folder; a new run needs a new
    folder.

    Args:
        folder: where to save the plans; see `EpochPlans`.
        dataset: the data set to train on, N rows.
        embed: returns the vectors of rows; see `EpochPlans`. The model is in evaluation mode, and
            autocast in the precision of the training.
        planner, ahead, ahead_threads, every, keep, seed, timeout, device, memory: see `EpochPlans`.
        embeddings: ``training`` plans from what `record` gets; see `EpochPlans`.
        options: of the planner. ``batch_size``, the rows per device, and ``world_size`` default to
            the training arguments and must agree with them.

    Raises:
        InputError: a data set without a length; and from the trainer, if its arguments contradict
            the plan or would undo it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        dataset: Sized,
        embed: Embed,
        planner: str = "partition",
        *,
        embeddings: Mode = "fresh",
        ahead: float | None = None,
        ahead_threads: int | None = None,
        every: int = 1,
        keep: int = 10,
        seed: int = 0,
        timeout: float = 6 * 3600,
        device: str = "auto",
        memory: int | None = None,
        **options: Any,
    ) -> None:
        if not hasattr(dataset, "__len__"):
            raise InputError(
                f"data set: got a {type(dataset).__name__}, which has no length and no rows by "
                "number; load it as a datasets.Dataset, or another map-style data set"
            )
        self.dataset: Any = dataset
        self.options = options
        self._plans: EpochPlans | MultiDatasetPlans | None = None
        self._sampler: PlanBatchSampler | None = None
        self._series: dict[str, Any] = {
            "folder": folder, "planner": planner, "embeddings": embeddings, "ahead": ahead,
            "ahead_threads": ahead_threads, "every": every,
            "keep": keep, "seed": seed, "timeout": timeout, "device": device, "memory": memory,
        }  # fmt: skip
        self._embed: Embed | None = embed
        self._model: Any = None
        self._autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._asked = False
        self._epoch: int | None = None
        self._step = 0  # of this epoch: batches that this process has trained on

    def __getstate__(self) -> dict[str, Any]:
        """The state for checkpoints, without the model and the data."""
        return {**self.__dict__, "_model": None, "_embed": None, "_autocast": None, "dataset": None}

    @property
    def plans(self) -> EpochPlans | MultiDatasetPlans:
        """The plans of all epochs, which the trainer's first event creates.

        Raises:
            InputError: that event has not come, as when the plans were added to a trainer later.
        """
        if self._plans is None:
            raise InputError(_NO_TRAINER)
        return self._plans

    @property
    def sampler(self) -> PlanBatchSampler:
        """The batches of the epoch, for all devices; raises as `plans`."""
        if self._sampler is None:
            raise InputError(_NO_TRAINER)
        return self._sampler

    def batches(self, dataset: Sized, batch_size: int) -> PlanBatchSampler:
        """The batches of all devices, for a loader that Accelerate prepares.

        Raises:
            InputError: another data set or batch size than the plan's, or no trainer yet.
        """
        check_loader(self.plans.batching, self.plans.num_rows, dataset, batch_size)
        self._asked = True
        return self.sampler

    def on_init_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: Any = None,
        **_others: Any,
    ) -> None:
        """Check the training arguments, and prepare to plan."""
        self._model = model
        check_arguments(args)
        if args.bf16 or args.fp16:
            kind = torch.bfloat16 if args.bf16 else torch.float16
            self._autocast = partial(torch.autocast, args.device.type, kind)
        self._plans = self.make_plans(args)
        self._sampler = PlanBatchSampler(self.plans, rank=ALL, world_size=args.world_size)

    def make_plans(self, args: TrainingArguments) -> EpochPlans | MultiDatasetPlans:
        """The plans of all epochs, by the training arguments."""
        return self.plans_of(args, len(self.dataset), self._embed_rows, self.options)

    def plans_of(
        self,
        args: TrainingArguments,
        num_rows: int,
        embed: Embed,
        options: Mapping[str, Any],
        **others: Any,
    ) -> EpochPlans:
        """The plans of all epochs of one data set.

        Args:
            args: those of the trainer.
            num_rows, embed, others: of `EpochPlans`.
            options: of the planner.

        Raises:
            InputError: options that contradict the training arguments.
        """
        options = dict(options)
        for name, value in (
            ("batch_size", args.per_device_train_batch_size),
            ("world_size", args.world_size),
        ):
            if options.setdefault(name, value) != value:
                raise InputError(
                    f"{name.replace('_', ' ')}: got {options[name]} for the plan, but the training "
                    f"arguments say {value}; leave it out, or change the arguments"
                )
        return EpochPlans(
            embed=embed,
            num_rows=num_rows,
            rank=args.process_index,
            epochs=ceil(args.num_train_epochs) if args.max_steps <= 0 else None,
            **{**self._series, **others},
            **options,
        )

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: Any = None,
        **_others: Any,
    ) -> None:
        """Require that the loader uses the batches of the plans."""
        self._model, self._epoch = model, None
        if not self._asked:
            raise InputError(
                "plans: the trainer's loader does not take their batches; let the trainer inherit "
                "from PlannedBatches (with sentence-transformers, pass batch_sampler=plans), and "
                "train on the data set that the plans got"
            )
        if state.global_step:
            self.plans.resume()

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: Any = None,
        **_others: Any,
    ) -> None:
        """Plan the epoch, or resume the plan that it began with."""
        self._model = model
        steps = self.plans.num_batches() // self._batches_per_step
        begun = 0
        if self._epoch is None:  # the trainer may resume within an epoch
            updates = -(-steps // args.gradient_accumulation_steps)
            self._epoch, begun = divmod(state.global_step, updates)
        else:
            self._epoch += 1
        if begun:
            plan = self.plans.existing(self._epoch)
            known = state.stateful_callbacks.get(_STATE, {}).get("attributes", {})
            if known.get("plan") not in (None, plan.digest):
                raise InputError(
                    f"{self.plans.path(self._epoch)}: is not the plan that the checkpoint began "
                    "this epoch with; restore that, or resume from the end of an epoch"
                )
        else:
            plan = self.plans.for_epoch(self._epoch)
        if (got := len(plan) // self._batches_per_step) != steps:
            raise InputError(
                f"{self.plans.path(self._epoch)}: has {got} steps, but the trainer expects {steps} "
                "in every epoch; choose a planner that makes as many"
            )
        self.sampler.set_epoch(self._epoch)
        self._step = begun * args.gradient_accumulation_steps
        attributes = {"epoch": self._epoch, "plan": plan.digest}
        state.stateful_callbacks[_STATE] = {"args": {}, "attributes": attributes}

    def record(self, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of the step for the next plan, with ``embeddings="training"``. Call it
        where the loss is computed.

        Args:
            x, y, negatives: (n, d), the vectors of the rows of the step; see `EpochPlans.record`.

        Raises:
            InputError: another number of vectors than rows, or as there.
        """
        self.plans.record(self._rows(), x, y, *negatives)

    def on_substep_end(self, *_events: Any, **_others: Any) -> None:
        """Count a step whose gradients are accumulated."""
        self._step += 1

    def on_step_end(self, *_events: Any, **_others: Any) -> None:
        """Count a step."""
        self._step += 1

    def _rows(self) -> list[int]:
        """The rows that this process trains on now."""
        devices = self.plans.batching.world_size
        return self.sampler[self._step * devices + self.plans.rank]

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_others: Any
    ) -> None:
        """End the run: another one needs another folder."""
        self.plans.end()

    @property
    def _batches_per_step(self) -> int:
        batching = self.plans.batching
        return batching.world_size if batching.scope == "device" else 1

    def _embed_rows(self, rows: Int64Array, *of: Any) -> Any:
        if self._embed is None:
            raise InputError("embed: was lost when the plans were pickled; make them again")
        training = self._model.training
        try:
            self._model.eval()
            with self._autocast():
                return self._embed(rows, *of)
        finally:
            self._model.train(training)


class PlannedBatches:
    """A mixin for a Trainer that has a `PlannedEpochs` among its callbacks: it trains on the
    batches of the plans."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The loader of the training, prepared by Accelerate.

        Raises:
            InputError: no `PlannedEpochs` among the callbacks, or as `PlannedEpochs.batches`.
        """
        trainer: Any = self
        callbacks = trainer.callback_handler.callbacks
        plans = [callback for callback in callbacks if isinstance(callback, PlannedEpochs)]
        if len(plans) != 1:
            raise InputError(
                f"callbacks: got {len(plans)} PlannedEpochs, expected one; pass callbacks=[plans]"
            )
        args, dataset = trainer.args, trainer.train_dataset
        batches = plans[0].batches(dataset, trainer._train_batch_size)
        collate = trainer.data_collator
        if hasattr(dataset, "remove_columns"):
            dataset = trainer._remove_unused_columns(dataset, description="training")
        else:
            collate = trainer._get_collator_with_removed_columns(collate, description="training")
        workers = args.dataloader_num_workers
        loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=args.process_index),
        )
        prepared: DataLoader[Any] = trainer.accelerator.prepare(loader)
        return prepared


class _RecordedSteps(TrainerCallback):
    """Tells a `Recorder` where the training is, by what the trainer counts."""

    loader: Any = None

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._epoch: int | None = None
        self._step = 0  # of this epoch: batches that this process has trained on
        self._step = 0

    def take(self, batch: Any) -> Any:
        """The batch of a step without its row numbers, which are recorded."""
        taken = self._recorder.take(batch, self._epoch or 0, self._step, plan_of(self.loader))
        self._step += 1
        return taken

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_others: Any
    ) -> None:
        self._recorder.start()
        self._epoch = None

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_others: Any
    ) -> None:
        self._step = 0
        if self._epoch is not None:
            self._epoch += 1
            return
        accumulated, updates = args.gradient_accumulation_steps, state.max_steps
        if has_length(self.loader):
            updates = max(-(-len(self.loader) // accumulated), 1)
        self._epoch, begun = divmod(state.global_step, updates)
        self._step = begun * accumulated

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_others: Any
    ) -> None:
        if not control.should_training_stop or state.global_step >= state.max_steps:
            self._recorder.end(self._epoch or 0, self._step)


def record(recorder: Recorder, trainer: Any) -> None:
    """`Recorder.attach` for a Trainer: the rows of the batches that its ``training_step`` gets."""
    steps = _RecordedSteps(recorder)
    load, train = trainer.get_train_dataloader, trainer.training_step

    def get_train_dataloader() -> Any:
        steps.loader = load()
        number(steps.loader)
        return steps.loader

    def training_step(model: Any, inputs: Any, *others: Any, **named: Any) -> Any:
        return train(model, steps.take(inputs), *others, **named)

    trainer.get_train_dataloader, trainer.training_step = get_train_dataloader, training_step
    trainer.add_callback(steps)


def check_arguments(args: TrainingArguments) -> None:
    """Refuse training arguments that would silently undo a plan.

    Raises:
        InputError: the first of them.
    """
    dealing = args.accelerator_config
    order = getattr(args, "train_sampling_strategy", "random")
    wrong = {
        "split_batches=True: would cut every batch of the plan, as scope='global' does": (
            dealing.split_batches
        ),
        "dispatch_batches=True: would deal the batches of a plan out twice": (
            dealing.dispatch_batches
        ),
        "ignore_data_skip=True: would begin the plan again after a restart": args.ignore_data_skip,
        "auto_find_batch_size=True: would change the batch size": args.auto_find_batch_size,
        f"train_sampling_strategy={order!r}: the plan decides the order": order != "random",
    }
    for problem, present in wrong.items():
        if present:
            raise InputError(f"{problem}; leave it out")
    if (started := process_place()[1]) != args.world_size:
        raise InputError(
            f"world size: {started} processes were started, but the training arguments know "
            f"{args.world_size}, so each would train alone; on CPUs, pass use_cpu=True"
        )
    if args.n_gpu > 1:
        raise InputError(
            f"devices: got {args.n_gpu} in one process, for which DataParallel would cut each "
            f"batch; start with torchrun --nproc-per-node {args.n_gpu}, or make one device visible"
        )
    if args.fsdp:
        raise InputError(
            "sharding: got FSDP, with which planned epochs of a Trainer are not tested; use DDP, "
            "ZeRO stage 3, or EpochPlans with fully_shard in a loop (docs/frameworks.md)"
        )
