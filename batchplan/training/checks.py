"""Checks that a loader feeds the batches of a plan."""

import sys
import warnings
from collections.abc import Iterable, Sized
from hashlib import blake2b
from itertools import count, product
from types import FrameType
from typing import Any, Final

import numpy as np

from batchplan.errors import InputError
from batchplan.options import ROW_COLUMN
from batchplan.plans.batching import Batching

_MAKERS: Final = {  # the methods of a Trainer that make loaders: whether of the training
    "get_train_dataloader": True,
    "get_eval_dataloader": False,
    "get_test_dataloader": False,
}
_CHECKPOINT: Final = "resume_from_checkpoint"  # the argument of Trainer.train

_SAMPLE: Final = 64  # rows of a digest

_RESUMED = count()  # passes of this process that resumed


def asked_for_training() -> bool | None:
    """Return whether a Trainer makes the loader of its training now; False for the loader of an
    evaluation or a prediction, None if no Trainer calls.

    sentence-transformers calls its ``batch_sampler`` for each of them, with arguments that do not
    say which it is. An evaluation on the training set would share the sampler, and Accelerate would
    set it to epoch 0 in the middle of the training's epoch.
    """
    frame = _maker()
    return None if frame is None else _MAKERS[frame.f_code.co_name]


def asking_trainer() -> Any:
    """Return the Trainer that makes a loader now; None if no Trainer calls. Callbacks and samplers
    get none, but only a Trainer logs to its trackers."""
    frame = _maker()
    return None if frame is None else frame.f_locals.get("self")


def resumed_checkpoint() -> str | None:
    """Return the folder of the checkpoint from which a Trainer resumes that makes a loader now. It
    says so to callbacks only when it has the loader, whose length may depend on the plans."""
    frame = _maker()
    while frame is not None and _CHECKPOINT not in frame.f_locals:
        frame = frame.f_back
    return None if frame is None else frame.f_locals[_CHECKPOINT]


def _maker() -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name not in _MAKERS:
        frame = frame.f_back
    return frame


def process_group() -> Any:
    """Return ``torch.distributed`` if the processes of this training have joined, else None. Does
    not import torch."""
    distributed = sys.modules.get("torch.distributed")
    joined = distributed and distributed.is_available() and distributed.is_initialized()
    return distributed if joined else None


def check_dealing(batching: Batching, everywhere: bool) -> None:
    """Refuse an accelerate that deals the batches out which the caller's caller takes.

    Args:
        batching: of the plan.
        everywhere: whether they are the parts of all devices, which accelerate should deal out.

    Raises:
        InputError: it would leave batches out, or fill the last step with the first rows.
    """
    shard: Any = sys._getframe(2).f_locals.get("self")
    if type(shard).__name__ != "BatchSamplerShard":
        return
    processes = shard.num_processes
    if not everywhere or processes != batching.world_size:
        raise InputError(
            f'rank: accelerate deals the batches out to {processes} processes; pass rank="all" and '
            f"world_size={processes}, with a plan for {processes} devices"
        )


def counted_by_accelerate() -> bool:
    """Return whether accelerate sets the epoch of the caller by the number of its passes, as it
    does when one begins, if there is a single process."""
    frame = sys._getframe(3).f_back  # of accelerate's set_epoch, beyond the caller's decorator
    if frame is None or frame.f_code.co_name != "__iter__":
        return False
    return type(frame.f_locals.get("self")).__name__ == "DataLoaderShard"


def check_same_everywhere(sampler: Any, dataset: Any) -> None:
    """Require that all processes have the same single plan and the same rows. All must call it.

    Args:
        sampler: a PlanBatchSampler. The processes of a series compare what they need.
        dataset: to train on, or a dictionary of several. Samples of a datasets.Dataset are
            compared.

    Raises:
        InputError: a process has others than rank 0.
    """
    if (distributed := process_group()) is None:
        return
    sets = dataset.items() if isinstance(dataset, dict) else [("", dataset)]
    digests = " ".join(f"{name} {digest_of(rows)}".lstrip() for name, rows in sets)
    own = {"plan": None if sampler.series else sampler.plan.digest, "data set": digests}
    each: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(each, own)
    for name, (rank, other) in product(own, enumerate(each)):
        if other[name] != each[0][name]:
            raise InputError(
                f"{name}: rank {rank} has another one than rank 0 (digest {other[name]!s:.200}, "
                f"expected {each[0][name]!s:.200}); give all processes the same one, in the same "
                "order"
            )


def check_same_place(place: str) -> None:
    """Require that all processes that resume a pass do so at the same place. None waits for
    another, since loaders begin a pass when they like: the first says where it resumes.

    Args:
        place: in words.

    Raises:
        InputError: another process was at another place.
    """
    if (distributed := process_group()) is None:
        return
    store = distributed.distributed_c10d._get_default_store()
    first = store.compare_set(f"batchplan/resumed/{next(_RESUMED)}", "", place).decode()
    if first != place:
        raise InputError(
            f"state: rank {distributed.get_rank()} resumes at {place}, but another one at {first}; "
            "load states that all ranks saved after the same step"
        )


def part_size(batching: Batching) -> int:
    """Return the most rows that a device gets in a step."""
    parts = batching.world_size if batching.scope == "global" else 1
    return -(-batching.batch_size // parts)


def digest_of(dataset: Any) -> str | None:
    """Return a digest of 64 rows or less of a datasets.Dataset, or of each in a ConcatDataset, by
    which it is known. None for other data sets, whose rows may be random."""
    parts = dataset.datasets if hasattr(dataset, "cumulative_sizes") else [dataset]
    if None in (samples := [*map(_sample, parts)]):
        return None
    return blake2b(repr(samples)[1:-1].encode(), digest_size=16).hexdigest()


def _sample(dataset: Any) -> dict[str, list[Any]] | None:
    """Return the columns of 64 rows or less of a datasets.Dataset; None for other data sets, also a
    dictionary of some."""
    if isinstance(dataset, dict) or not (
        hasattr(dataset, "with_format") and hasattr(dataset, "__len__")
    ):
        return None
    rows = dataset.with_format("arrow")[range(0, len(dataset), len(dataset) // _SAMPLE + 1)]
    sampled: dict[str, list[Any]] = rows.to_pydict()
    return sampled


def check_same_rows(planned: Any, dataset: Any) -> None:
    """Require that two datasets.Dataset of as many rows have them in the same order. Samples of the
    columns that both have are compared; one may be rewritten, such as by a tokenizer.

    Raises:
        InputError: all differ; or there are none, and the second was selected or sorted.
    """
    ours, others = _sample(planned) or {}, _sample(dataset) or {}
    shared = {name: (repr(ours[name]), repr(others[name])) for name in ours if name in others}
    differ = [name for name, (our, other) in shared.items() if our != other]
    alike = [name for name in shared if name not in differ and len({*map(repr, ours[name])}) > 1]
    if differ and not alike:
        raise InputError(
            "data set: the trainer has other rows than the plans got, or has them in another order "
            f"(column {differ[0]!r}); pass both the same data set"
        )
    moved = getattr(dataset, "_indices", None)
    if ours and others and not shared and moved is not None and moved != planned._indices:
        raise InputError(
            "data set: the trainer's was selected, sorted or shuffled, and has no column of the "
            "one that the plans got, so that their rows cannot be compared; keep a column, or, if "
            "the plans got this order, call its flatten_indices()"
        )


def length_of(dataset: Any) -> int:
    """Return the number of rows of a data set. Raises InputError if it has no length."""
    if not hasattr(dataset, "__len__"):
        raise InputError(
            f"data set: got {type(dataset).__name__}, which has no length and no rows by number; "
            "load it as a datasets.Dataset, or another map-style data set"
        )
    return len(dataset)


def check_numbers(dataset: Any) -> None:
    """Refuse a datasets.Dataset with row numbers of another order; raises InputError."""
    numbers = dataset.with_format("numpy")[ROW_COLUMN][:]
    if not np.array_equal(numbers, np.arange(len(dataset))):
        raise InputError(
            f"data set: its column {ROW_COLUMN} is not 0 to {len(dataset) - 1:,}, as after a "
            "selection, or from `batchplan materialize`; call with_rows before you select, or "
            "remove the column if these rows are planned in this order"
        )


def warn_of_new_order(dataset: Any) -> None:
    """Warn of a datasets.Dataset that may have been reordered since a single plan was made. Refuse
    one with row numbers of another order, as `materialize` writes; raises InputError."""
    if ROW_COLUMN in (getattr(dataset, "column_names", None) or ()):
        check_numbers(dataset)
    if getattr(dataset, "_indices", None) is not None:
        warnings.warn(
            "data set: was selected, sorted or shuffled; if that was after it was planned, batches "
            "get other rows than the plan says: plan it as it is now; if it was before, call its "
            "flatten_indices()",
            stacklevel=3,
        )


def check_rows(num_rows: int, dataset: Sized, ends: Iterable[int] = ()) -> None:
    """Require that a data set has as many rows as the data of a plan.

    Args:
        num_rows: of the plan.
        dataset: of the loader.
        ends: the numbers of rows up to the end of each data set that was planned, of several.

    Raises:
        InputError: it has another number, or no length; or a ConcatDataset has other parts.
    """
    if (rows := length_of(dataset)) != num_rows:
        raise InputError(
            f"data set: got {rows} rows, but the plan is for {num_rows}; pass the data set that "
            "was planned, in the same order"
        )
    parts = getattr(dataset, "cumulative_sizes", None)  # of a ConcatDataset
    if parts and not {*(planned := [*map(int, ends)])} <= {*parts}:
        raise InputError(
            f"data sets: the parts of the ConcatDataset end at rows {parts}, but those of the "
            f"plans at {planned}; join them in the order of the plans"
        )


def check_loader(batching: Batching, num_rows: int, dataset: Sized, batch_size: int) -> None:
    """Require that a loader has the data set and the batch size of a plan.

    Args:
        batching: how the plan was cut.
        num_rows: rows of its data.
        dataset: the data set of the loader.
        batch_size: rows that each device is to get in a step.

    Raises:
        InputError: another number of rows, or another batch size.
    """
    check_rows(num_rows, dataset)
    if batch_size != (expected := part_size(batching)):
        raise InputError(
            f"batch size: got {batch_size} rows per device, but the plan gives each {expected}; "
            f"set per_device_train_batch_size={expected}, or plan again"
        )
