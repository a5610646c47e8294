"""The batches of a plan, for a PyTorch DataLoader."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from importlib import import_module
from types import FrameType
from typing import Any, Final, Literal, Protocol, SupportsIndex, TypeVar, runtime_checkable

from batchplan.errors import InputError
from batchplan.plans.batching import Batching
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step, share_offsets
from batchplan.plans.stored import StoredPlan

T = TypeVar("T")

ALL: Final = "all"

_MAKERS: Final = {  # the methods of a Trainer that make loaders: whether of the training
    "get_train_dataloader": True,
    "get_eval_dataloader": False,
    "get_test_dataloader": False,
}
_ONE_LOADER = (
    "in the middle of a pass, so that where the training is cannot be known; make a sampler and a "
    "loader for each purpose, one for the training and one for an evaluation"
)


@runtime_checkable
class PlanSeries(Protocol):
    """A plan for every epoch, such as `batchplan.training.EpochPlans`.

    Attributes:
        batching: how the rows of every plan are cut.
    """

    batching: Batching

    def num_batches(self) -> int:
        """Batches of every plan."""

    def for_epoch(self, epoch: int) -> Plan:
        """The plan of an epoch, counted from 0; made if there is none."""

    def existing(self, epoch: int) -> Plan:
        """The plan of an epoch that was made before."""

    def resume(self) -> None:
        """Go on with a run that made plans before."""


class PlanBatchSampler:
    """Yields the batches of a plan, or one device's part of them, in its order, every epoch.

        loader = DataLoader(dataset, batch_sampler=PlanBatchSampler("plan.npy"))

    It is also a sequence: ``sampler[step]`` is the list of row numbers of a step.

    Args:
        source: a plan; the path of one, see `batchplan.plans.stored.StoredPlan`: ``.npy`` takes
            the least memory, and pickles by its path; or a series, whose plan `set_epoch` chooses.
        batch_size: must be that of the plan; needed if its file has no metadata, see `Plan.load`.
        rank: number of this device, from 0, in a plan for several devices: its batches, or under
            the scope ``global`` its contiguous part of each. ``"all"``: the parts of all devices,
            step after step, for a library that deals batches out itself as Accelerate does.
        world_size: number of devices, which must be that of the plan.

    Attributes:
        plan: the plan of this epoch.
        epoch: the epoch, from 0.
        batch_size: the most rows that this device gets in a step. There is no such attribute with
            ``rank="all"``: Accelerate would fill short batches up with rows of the first ones.
        position: how many batches were taken in this epoch; 0 once it is complete; None if one of
            two loaders over this sampler has ended, so that it is not known.

    Raises:
        InputError: the file cannot be loaded, or its batch size is not ``batch_size``; a plan for
            another number of devices, or a rank that is none of them.
    """

    batch_size: int

    def __init__(
        self,
        source: Plan | PlanSeries | str | os.PathLike[str],
        *,
        batch_size: int | None = None,
        rank: SupportsIndex | Literal["all"] | None = None,
        world_size: SupportsIndex | None = None,
    ) -> None:
        self._plan: Plan | None = None
        self._series: PlanSeries | None = None
        if isinstance(source, Plan):
            self._plan = source
        elif isinstance(source, str | os.PathLike):
            self._plan = StoredPlan(source, batch_size=batch_size)
        elif isinstance(source, PlanSeries):
            self._series = source
        else:
            raise InputError(
                f"source: got a {type(source).__name__}, expected a plan, the path of one, or "
                "EpochPlans"
            )
        self._batching: Batching = self._series.batching if self._series else self.plan.metadata
        batching = self._batching
        if batch_size is not None and batch_size != batching.batch_size:
            raise InputError(
                f"batch size: got {batch_size}, but that of the plan is {batching.batch_size}; "
                f"leave it out, or plan again with --batch-size {batch_size}"
            )
        self.rank = _check_rank(batching, rank, world_size)
        self.epoch = 0
        self.start_at(0)
        if self.rank != ALL:
            self.batch_size = self._part_size

    @property
    def plan(self) -> Plan:
        """The plan of this epoch."""
        if self._plan is None and self._series is not None:
            self._plan = self._series.for_epoch(self.epoch)
        assert self._plan is not None  # a sampler has a plan or a series
        return self._plan

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch. In a series that is another plan, which is made now if it must be; a
        single plan stays, and is the same in every epoch."""
        if epoch == self.epoch and self._plan is not None:
            return
        if self._series is not None:
            self._plan = self._series.for_epoch(epoch)
        if epoch != self.epoch:
            self.start_at(0)
        self.epoch = epoch

    def set_plan(self, plan: Plan) -> None:
        """Take the batches of another plan, from its first one on.

        Raises:
            InputError: it is for other rows, or cuts them in another way: another number of
                devices, scope or batch size; or this sampler has a series, which chooses.
        """
        if self._series is not None:
            raise InputError("plan: this sampler takes those of a series; call set_epoch instead")
        now, new = self.plan.metadata, plan.metadata
        for name in ("num_rows", "batch_size", "world_size", "scope"):
            if (got := getattr(new, name)) != (expected := getattr(now, name)):
                raise InputError(
                    f"plan: its {name.replace('_', ' ')} is {got}, that of the plan before is "
                    f"{expected}; plan again as before, or make another PlanBatchSampler"
                )
        self._plan = plan
        self.start_at(0)

    def start_at(self, position: int) -> None:
        """Let the next pass begin after ``position`` batches; those after it begin at the first."""
        self.position: int | None = position
        self._start = position
        self._passes: set[object] = set()  # that have begun, and not ended, since then

    def state_dict(self) -> dict[str, Any]:
        """Where this sampler is, as JSON values: the digest of the plan, the epoch, and how many
        batches were taken. A loader with workers takes some ahead of the training step.

        Raises:
            InputError: another loader took batches from this sampler in the middle of the epoch.
        """
        if self.position is None:
            raise InputError(f"state: another loader took batches {_ONE_LOADER}")
        return {
            "plan": self.plan.digest,
            "epoch": self.epoch,
            "position": self.position,
            "parts": ALL if self.rank == ALL else "own",
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called: the next pass begins there, those after it at the
        first batch.

        Raises:
            InputError: it was called with another plan, or the plan of its epoch is gone.
        """
        missing = {"plan", "epoch", "position", "parts"} - state.keys()
        if missing:
            raise InputError(
                f"state: has no {', '.join(sorted(missing))}; pass what state_dict() returned"
            )
        if state["parts"] != (ALL if self.rank == ALL else "own"):
            raise InputError(
                f"state: of a sampler of {state['parts']} parts, whose steps count otherwise than "
                "those of this one; make the sampler with the rank that it had"
            )
        epoch, position = state["epoch"], state["position"]
        plan = self._plan
        if self._series is not None:
            self._series.resume()
            plan = self._series.existing(epoch) if position else None
        if plan is not None and plan.digest != state["plan"]:
            raise InputError(
                f"state: taken {position} batches into the plan with digest {state['plan']}, but "
                f"this plan is {plan.digest}; go on with the plan of the checkpoint, or train the "
                "epoch from its start"
            )
        self._plan, self.epoch = plan, epoch
        self.start_at(position)

    def __getattr__(self, name: str) -> Any:
        if name != "batch_size":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(
            'batch_size: not known with rank="all"; a trainer that asks for it trains on several '
            "data sets: pass PlannedEpochs the same dictionary, or join them with "
            "datasets.concatenate_datasets, and plan with source_column"
        )

    def __call__(self, dataset: Sized, batch_size: int, *others: Any, **named: Any) -> Any:
        """This sampler, for sentence-transformers, which calls what it gets as ``batch_sampler``
        with the data set, the batch size of a device and more that a plan has settled already. For
        an evaluation it returns random batches.

        Raises:
            InputError: the data set, or the batch size, is not that of the plan; or this is the
                part of one device, of which Accelerate would leave out most.
        """
        if asked_for_training() is False:
            trainers = import_module("batchplan.training.sentence_transformers")
            return trainers.random_batches(dataset, batch_size, *others, **named)
        batching = self._batching
        if batching.world_size > 1 and self.rank != ALL:
            raise InputError(
                f"rank: got {self.rank}, but sentence-transformers deals out the batches of all "
                f'devices itself; pass rank="all"'
            )
        check_loader(batching, self.plan.metadata.num_rows, dataset, batch_size)
        return self

    def __len__(self) -> int:
        batching = self._batching
        if self._plan is None and self._series is not None:
            batches = self._series.num_batches()  # known before the first plan
        else:
            batches = len(self.plan)
        steps = batches // batches_per_step(batching.world_size, batching.scope)
        return steps * batching.world_size if self.rank == ALL else steps

    def __getitem__(self, step: int) -> list[int]:
        """The rows of a step: int numbers, in the order of the plan.

        Raises:
            IndexError: there are not that many.
        """
        step = range(len(self))[step]
        batching, rank = self._batching, self.rank
        if rank == ALL:
            step, rank = divmod(step, batching.world_size)
        return self._part(step, rank)

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start, 0
        passes, this = self._passes, object()
        try:
            for step in range(start, len(self)):
                if passes is not self._passes:
                    raise InputError(f"sampler: was set to another place {_ONE_LOADER}")
                passes.add(this)
                self.position = step + 1
                yield self[step]
            self.position = 0
        finally:
            passes.discard(this)
            if passes and passes is self._passes:  # of an epoch that goes on, or was broken off
                self.position = None

    @property
    def _part_size(self) -> int:
        return part_size(self._batching)

    def _part(self, step: int, rank: int) -> list[int]:
        """What a device gets in a step."""
        batching = self._batching
        shared = batching.scope == "global"
        batch = step if shared else step * batching.world_size + rank
        start, stop = self.plan.batch_offsets[batch : batch + 2].tolist()
        if shared:
            offsets = share_offsets(stop - start, batching.world_size)
            start, stop = start + offsets[rank], start + offsets[rank + 1]
        rows: list[int] = self.plan.entries(start, stop).tolist()
        return rows


def asked_for_training() -> bool | None:
    """Whether a Trainer makes the loader of its training now, False for that of an evaluation or a
    prediction, None if no Trainer does.

    sentence-transformers calls what it got as ``batch_sampler`` for each of them, with arguments
    that do not say which it is. An evaluation on the training set would share the sampler, and
    Accelerate would set it to epoch 0 in the middle of the training's epoch.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if (name := frame.f_code.co_name) in _MAKERS:
            return _MAKERS[name]
        frame = frame.f_back
    return None


def sole_pass(batches: Iterable[T], loader: Any) -> Iterator[T]:
    """The batches of a pass over a loader that counts its steps.

    Raises:
        InputError: after another pass over the same loader has begun.
    """
    loader.latest_pass = this = object()
    for batch in batches:
        yield batch
        if loader.latest_pass is not this:
            raise InputError(f"loader: another pass began {_ONE_LOADER}")


def part_size(batching: Batching) -> int:
    """The most rows that a device gets in a step."""
    return (
        -(-batching.batch_size // batching.world_size)
        if batching.scope == "global"
        else batching.batch_size
    )


def check_rows(num_rows: int, dataset: Sized) -> None:
    """Require that a data set has as many rows as that of a plan.

    Raises:
        InputError: it has another number.
    """
    if (rows := len(dataset)) != num_rows:
        raise InputError(
            f"data set: got {rows} rows, but the plan is for {num_rows}; pass the data set whose "
            "embeddings were planned, in the same order, and several data sets as one that "
            "concatenates them"
        )


def check_loader(batching: Batching, num_rows: int, dataset: Sized, batch_size: int) -> None:
    """Require that a loader is asked for what a plan holds.

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
            f"set per_device_train_batch_size={expected}, or plan again with --batch-size "
            f"{batch_size}"
        )


def _check_rank(
    batching: Batching, rank: SupportsIndex | str | None, world_size: SupportsIndex | None
) -> int | Any:
    """The rank as a number, or "all"; 0 if the plan is for one device and none is given."""
    devices = batching.world_size
    alone = rank is None and world_size is None
    if alone and devices > 1:
        raise InputError(
            f"rank: not given, but the plan is for {devices} devices; pass rank=..., "
            f"world_size={devices}, as from torch.distributed.get_rank() and get_world_size()"
        )
    asked = _integer("world size", 1 if alone else world_size)
    if asked != devices:
        raise InputError(
            f"world size: got {asked}, but the plan is for {devices} device{'s' * (devices > 1)}; "
            f"plan again with --world-size {asked} (world_size={asked} in Python)"
        )
    if isinstance(rank, str) and rank == ALL:
        return ALL
    number = _integer("rank", 0 if alone else rank)
    if not 0 <= number < devices:
        raise InputError(f"rank: got {number}, expected from 0 to {devices - 1}")
    return number


def _integer(name: str, value: SupportsIndex | str | None) -> int:
    try:
        if not isinstance(value, bool | str | None):
            return operator.index(value)
    except TypeError:
        pass
    raise InputError(f"{name}: got {value!r}, expected an integer; pass both rank and world_size")
