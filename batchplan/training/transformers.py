"""Planned epochs in a transformers.Trainer.

    plans = PlannedEpochs(train_dataset, lambda rows: embed(model, train_dataset, rows))
    trainer = PlannedTrainer(model, args, train_dataset=train_dataset, callbacks=[plans])

with ``class PlannedTrainer(PlannedBatches, Trainer): pass``.
"""

import os
from collections.abc import Callable, Mapping, Sized
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import has_length, seed_worker

from batchplan.errors import InputError
from batchplan.keywords import EpochKeywords
from batchplan.plans.steps import batches_per_step
from batchplan.training.arguments import checked
from batchplan.training.checks import (
    asking_trainer,
    check_loader,
    check_same_everywhere,
    check_same_rows,
    digest_of,
    length_of,
    resumed_checkpoint,
)
from batchplan.training.epochs import EpochPlans, process_place
from batchplan.training.multi_dataset import MultiDatasetPlans
from batchplan.training.resuming import checked_place, keep, place
from batchplan.training.rows import number
from batchplan.training.runs import STATE, agree_on_run, folder_of
from batchplan.training.sampler import ALL, PlanBatchSampler, plan_of
from batchplan.training.text_columns import ids_of
from batchplan.training.trace_writer import TraceWriter
from batchplan.training.vectors import Embed, in_evaluation
from batchplan.typing import Int64Array


class PlannedEpochs(TrainerCallback):
    """A callback that plans each epoch with the current model; `PlannedBatches` trains on the plan.

    The trainer logs the figures of each planned epoch, such as ``batchplan/gain``, to the
    trackers of its ``report_to``; see `EpochPlans`.

    The plans of each run get a folder of their own, named by the time of its start. Checkpoints
    name it, so that a run that resumes finds its plans.

    Columns that the options name, such as ``anchor_id``, are read from a datasets.Dataset that has
    them, without a ``label_table``. If none are named, the texts of its columns ``anchor`` and
    ``positive`` are known answers, unless ``guard=False``.

    Args:
        dataset: the data set to train on, N rows.
        embed: returns the vectors of rows; see `EpochPlans`. The model is in evaluation mode, and
            autocast in the precision of the training.
        planner: a name in `batchplan.planners.PLANNERS`.
        folder: where to save the folders of runs, which all machines must share; by default
            ``_plans`` in the output folder of the trainer.
        options: other arguments of `EpochPlans`, such as ``embeddings`` and ``seed``, and options
            of the planner. ``batch_size``, the rows per device, and ``world_size`` default to the
            training arguments and must agree with them.

    Attributes:
        sampler: the batches of the epoch, for all devices; None before the trainer's first event.

    Raises:
        InputError: the data set has no length; and from the trainer, if its arguments contradict
            the plan or would undo it.
    """

    @checked
    def __init__(
        self,
        dataset: Sized,
        embed: Embed,
        planner: str = "partition",
        *,
        folder: str | os.PathLike[str] | None = None,
        **options: Unpack[EpochKeywords],
    ) -> None:
        length_of(dataset)
        self.dataset: Any = dataset
        self.folder, self.planner = folder, planner
        self.options: dict[str, Any] = {**options}
        self._plans: EpochPlans | MultiDatasetPlans | None = None
        self.sampler: Any = None  # made with the plans
        self._embed: Embed | None = embed
        self._model: Any = None
        self._arguments: Any = None
        self._run = ""  # the name of its folder
        self._autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._asked = False
        self._trainer: Any = None  # that asked; it logs
        self._epoch: int | None = None
        self._step = 0  # of this epoch: batches that this process has trained on
        self._logged: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state for checkpoints, without the model and the data."""
        lost = ("_model", "_arguments", "_embed", "_autocast", "_trainer", "dataset")
        return {**self.__dict__, **dict.fromkeys(lost)}

    @property
    def plans(self) -> EpochPlans | MultiDatasetPlans:
        """The plans of all epochs, which the trainer's first event creates.

        Raises:
            InputError: that event has not come, as when the plans were added to a trainer later.
        """
        if self._plans is None:
            raise InputError("plans: the trainer does not know them; pass callbacks=[plans] to it")
        return self._plans

    def batches(self, dataset: Sized, batch_size: int) -> Any:
        """Begin a run, and return the batches of all devices for a loader that Accelerate prepares.

        Raises:
            InputError: another data set or batch size than the plan's, or no trainer yet.
        """
        batches = self.asked()
        check_loader(self.plans.batching, self.plans.num_rows, dataset, batch_size)
        check_same_rows(self.dataset, dataset)
        return batches

    def asked(self) -> Any:
        """Begin a run, and return its batches, for the trainer that asks now. It logs the figures
        of planned epochs.

        Raises:
            InputError: processes have other data sets, or have them in another order.
        """
        self.plans.end()
        check_same_everywhere(self.sampler, self.dataset)
        self._asked, self._trainer = True, asking_trainer()
        self._prepare(agree_on_run(_state_in(resumed_checkpoint())))
        return self.sampler

    def on_init_end(self, args: Any, *_: Any, model: Any = None, **_others: Any) -> None:
        """Check the training arguments, and prepare to plan."""
        self._model, self._arguments = uncompiled(model), args
        check_training_arguments(args)
        if args.bf16 or args.fp16:
            kind = torch.bfloat16 if args.bf16 else torch.float16
            self._autocast = partial(torch.autocast, args.device.type, kind)
        self._prepare("")  # to check the options now; each run prepares again

    def _prepare(self, run: str) -> None:
        """Prepare to plan the epochs of a run, by the training arguments as they are now."""
        args, self._run = self._arguments, run
        self._plans = self.make_plans(folder_of(run, self.folder, args.output_dir))
        self.sampler = PlanBatchSampler(self._plans, rank=ALL, world_size=args.world_size)

    def make_plans(self, folder: Path) -> EpochPlans | MultiDatasetPlans:
        """Make the plans of all epochs of a run."""
        ids = ids_of(self.dataset, folder, self.options, self.planner)
        options = {"data": digest_of(self.dataset), **self.options, **ids}
        return self.plans_of(folder, len(self.dataset), self._embed_rows, options)

    def plans_of(
        self, folder: Path, num_rows: int, embed: Embed, options: Mapping[str, Any]
    ) -> EpochPlans:
        """Make the plans of all epochs of one data set.

        Args:
            folder, num_rows, embed, options: arguments of `EpochPlans`.

        Raises:
            InputError: options that contradict the training arguments.
        """
        args = self._arguments
        known: dict[str, Any] = {
            "batch_size": args.per_device_train_batch_size,
            "world_size": args.world_size,
        }
        for name, value in known.items():
            if (got := options.get(name, value)) != value:
                raise InputError(
                    f"{name.replace('_', ' ')}: got {got} for the plan, but the training arguments "
                    f"say {value}; leave it out, or change the arguments"
                )
        epochs = float(args.num_train_epochs) if args.max_steps <= 0 else None
        known |= {"epochs": epochs, "rank": args.process_index}
        return EpochPlans(
            folder, self.planner, embed=embed, num_rows=num_rows, **{**known, **options}
        )

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any = None, **_others: Any
    ) -> None:
        """Require that the loader uses the batches of the plans."""
        self._model, self._epoch = uncompiled(model), None
        if not self._asked:
            raise InputError(
                "plans: the trainer's loader does not take their batches; let the trainer inherit "
                "from PlannedBatches (with sentence-transformers, pass batch_sampler=plans), and "
                "train on the data set that the plans got"
            )
        self._asked = False  # by the next trainer, or for the next run
        state.stateful_callbacks.setdefault(STATE, {})["run"] = self._run
        if state.global_step:
            self.plans.resume()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        """Plan the epoch, or resume the plan that it began with."""
        plans, batching = self.plans, self.plans.batching
        at_once = batches_per_step(batching.world_size, batching.scope)
        steps, begun = plans.num_batches() // at_once, 0
        if self._epoch is None:  # the trainer may resume within an epoch
            self._epoch, begun = checked_place(args, state, steps)
        else:
            self._epoch += 1
        plan = plans.existing(self._epoch) if begun else plans.for_epoch(self._epoch)
        if (got := len(plan) // at_once) != steps:
            raise InputError(
                f"{plans.path(self._epoch)}: has {got} steps, but the trainer expects {steps} in "
                "every epoch; choose a planner that makes as many"
            )
        keep(state, begun, plan=plan.begun)
        self.sampler.set_epoch(self._epoch)
        self._step = begun
        self._log({} if begun else plans.figures)

    def _log(self, figures: Mapping[str, float]) -> None:
        """Log the figures of a plan, in all processes, as a trainer may gather them. Trackers write
        one."""
        self._logged = self.plans.figures
        if figures and hasattr(self._trainer, "log"):
            self._trainer.log({f"batchplan/{name}": value for name, value in figures.items()})

    def record(self, x: Any, y: Any = None, *negatives: Any) -> None:
        """Keep the vectors of the step for the next plan, with ``embeddings="training"``. Call it
        where the loss is computed. Those of an evaluation, which finds the model in evaluation
        mode, are not kept.

        Args:
            x, y, negatives: (n, d), the vectors of the rows of the step; see `EpochPlans.record`.

        Raises:
            InputError: another number of vectors than rows, or as there.
        """
        if self._model.training:
            self.plans.record(self._rows(), x, y, *negatives)

    def on_step_end(self, *_events: Any, **_others: Any) -> None:
        """Count a step, and log the figures of a rest that was planned meanwhile."""
        self._step += 1
        if (figures := self.plans.figures) != self._logged:
            self._log(figures)

    on_substep_end = on_step_end  # a step whose gradients are accumulated

    def on_train_end(self, *_events: Any, **_others: Any) -> None:
        """End the run."""
        self.plans.end()

    def _rows(self) -> list[int]:
        """Return the rows that this process trains on now."""
        plans = self.plans
        rows: list[int] = self.sampler[self._step * plans.batching.world_size + plans.rank]
        return rows

    def _embed_rows(self, rows: Int64Array, *of: Any) -> Any:
        if self._embed is None:
            raise InputError("embed: was lost when the plans were pickled; make them again")
        with in_evaluation(self._model), self._autocast():
            return self._embed(rows, *of)


class PlannedBatches:
    """A mixin for a Trainer with a `PlannedEpochs` among its callbacks: it trains on the batches of
    the plans."""

    def get_train_dataloader(self) -> Any:
        """Return the loader of the training, prepared by Accelerate.

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
            dataset, batch_sampler=batches, collate_fn=collate, num_workers=workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=args.process_index),
        )  # fmt: skip
        return trainer.accelerator.prepare(loader)


def uncompiled(model: Any) -> Any:
    """Return a model without the wrapper of torch.compile."""
    return getattr(model, "_orig_mod", model)


def check_training_arguments(args: Any) -> None:
    """Refuse training arguments that would silently undo a plan.

    Args:
        args: a transformers.TrainingArguments.

    Raises:
        InputError: names the first of them.
    """
    dealing, order = args.accelerator_config, getattr(args, "train_sampling_strategy", "random")
    started = process_place()[1]
    for present, problem in (
        (dealing.split_batches, "split_batches=True: would cut every batch of the plan, as "
         "scope='global' does; leave it out"),
        (dealing.dispatch_batches, "dispatch_batches=True: would deal the batches of a plan out "
         "twice; leave it out"),
        (args.ignore_data_skip, "ignore_data_skip=True: would begin the plan again after a "
         "restart; leave it out"),
        (args.auto_find_batch_size, "auto_find_batch_size=True: would change the batch size; leave "
         "it out"),
        (order != "random", f"train_sampling_strategy={order!r}: the plan decides the order; leave "
         "it out"),
        (started != args.world_size, f"world size: {started} processes were started, but the "
         f"training arguments know {args.world_size}, so each would train alone; on CPUs, pass "
         "use_cpu=True"),
        (args.n_gpu > 1, f"devices: got {args.n_gpu} in one process, for which DataParallel would "
         f"cut each batch; start with torchrun --nproc-per-node {args.n_gpu}, or make one device "
         "visible"),
        (args.fsdp, "sharding: got FSDP, with which planned epochs of a Trainer are not tested; "
         "use DDP, ZeRO stage 3, or EpochPlans with fully_shard in a loop (docs/frameworks.md)"),
    ):  # fmt: skip
        if present:
            raise InputError(problem)


class _RecordedSteps(TrainerCallback):
    """Counts steps and epochs for a `Recorder`, as the trainer does."""

    loader: Any = None

    def __init__(self, recorder: TraceWriter) -> None:
        self._recorder = recorder
        self._epoch: int | None = None
        self._step = 0  # of this epoch: batches that this process has trained on

    def take(self, batch: Any) -> Any:
        """Record the rows of a step. Returns the batch without them."""
        taken = self._recorder.take(batch, self._epoch or 0, self._step, plan_of(self.loader))
        self._step += 1
        return taken

    def on_train_begin(self, *_events: Any, **_others: Any) -> None:
        self._recorder.start()
        self._epoch = None

    def on_epoch_begin(self, args: Any, state: Any, *_: Any, **_others: Any) -> None:
        if self._epoch is not None:
            self._epoch, self._step = self._epoch + 1, 0
            return
        known = has_length(self.loader)
        steps = len(self.loader) if known else state.max_steps * args.gradient_accumulation_steps
        self._epoch, self._step = place(args, state, steps)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if not control.should_training_stop or state.global_step >= state.max_steps:
            self._recorder.end(self._epoch or 0, self._step)


def _state_in(checkpoint: str | None) -> Any:
    """Return what a checkpoint has of `PlannedEpochs`; None if there is none."""
    path = os.path.join(checkpoint or "", TRAINER_STATE_NAME)
    if checkpoint is None or not os.path.isfile(path):
        return None
    callbacks: Any = TrainerState.load_from_json(path).stateful_callbacks
    return callbacks.get(STATE)


def record(recorder: TraceWriter, trainer: Any) -> None:
    """`Recorder.attach` for a Trainer: records the batches that its ``training_step`` gets."""
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
