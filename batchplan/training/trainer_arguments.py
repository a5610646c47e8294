"""Refuses the arguments of a Trainer that would undo a plan."""

from __future__ import annotations

from typing import Any

from batchplan.errors import InputError
from batchplan.training.epochs import process_place


def check_arguments(args: Any) -> None:
    """Refuse training arguments that would silently undo a plan.

    Args:
        args: a transformers.TrainingArguments.

    Raises:
        InputError: names the first of them.
    """
    dealing, order = args.accelerator_config, getattr(args, "train_sampling_strategy", "random")
    for present, problem in (
        (dealing.split_batches, "split_batches=True: would cut every batch of the plan, as "
         "scope='global' does"),
        (dealing.dispatch_batches, "dispatch_batches=True: would deal the batches of a plan out "
         "twice"),
        (args.ignore_data_skip, "ignore_data_skip=True: would begin the plan again after a "
         "restart"),
        (args.auto_find_batch_size, "auto_find_batch_size=True: would change the batch size"),
        (order != "random", f"train_sampling_strategy={order!r}: the plan decides the order"),
    ):  # fmt: skip
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
