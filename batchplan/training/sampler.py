"""The batches of a plan, for a PyTorch DataLoader."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex

from batchplan.errors import InputError
from batchplan.plans.batching import Batching
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step, share_offsets
from batchplan.training.arguments import check_arguments, checked
from batchplan.training.checks import (
    asked_for_training,
    asking_trainer,
    check_dealing,
    check_loader,
    check_rows,
    check_same_everywhere,
    check_same_place,
    counted_by_accelerate,
    digest_of,
    part_size,
    process_group,
    warn_of_new_order,
)

if TYPE_CHECKING:
    from batchplan.training.epochs import EpochPlans
    from batchplan.training.multi_dataset import MultiDatasetPlans

ALL: Final = "all"


class PlanBatchSampler:
    """Yields the batches of a plan, or one device's part of them, in its order, every epoch.

        sampler = PlanBatchSampler("plan.npy", dataset=dataset)
        loader = DataLoader(dataset, batch_sampler=sampler)

    It is also a sequence: ``sampler[step]`` is the list of row numbers of a step.

    Args:
        source: a plan; the path of one; or a series of plans, `EpochPlans` or
            `MultiDatasetPlans`, of which `set_epoch` chooses one.
        batch_size: must be the plan's. It is needed if the file has no metadata, see
            `Plan.load`.
        rank: number of this device, from 0, in a plan for several devices. The device gets its own
            batches, or under the scope ``global`` its contiguous part of each. ``"all"`` yields the
            parts of all devices, step after step, for a library that distributes batches itself,
            as Accelerate does.
        world_size: number of devices, which must be the plan's.
        dataset: that of the loader, to check that it has the rows of the plan. Of a
            `datasets.Dataset`, or a ConcatDataset of some, the state has a digest of a sample: a
            run that resumes must have the same rows in the same order.

    Attributes:
        series: the series of plans; None if there is a single plan.
        plan: the plan of this epoch.
        num_rows: rows of the data set.
        epoch: the epoch, from 0.
        batch_size: the most rows that this device gets in a step. There is no such attribute with
            ``rank="all"``: Accelerate would fill short batches up with rows of the first ones.
        position: number of batches that were taken in this epoch; 0 when it is complete.

    Warns:
        UserWarning: a second pass over a series whose epoch was never set; a single plan, and a
            `datasets.Dataset` that was selected, sorted or shuffled, perhaps since then.

    Raises:
        InputError: the file cannot be loaded, its batch size is not ``batch_size``, the plan is for
            another number of devices, this process has another rank, or the data set has another
            number of rows, or row numbers in another order.
    """

    batch_size: int

    def __init__(
        self,
        source: Plan | EpochPlans | MultiDatasetPlans | str | os.PathLike[str],
        *,
        batch_size: int | None = None,
        rank: SupportsIndex | Literal["all"] | None = None,
        world_size: SupportsIndex | None = None,
        dataset: Sized | None = None,
    ) -> None:
        if isinstance(source, str | os.PathLike):
            source = Plan.load(source, batch_size=batch_size)
        self._plan = source if isinstance(source, Plan) else None
        self.series = None if isinstance(source, Plan) else source
        if self.series is not None and not hasattr(source, "for_epoch"):
            kind = type(source).__name__
            raise InputError(
                f"source: got a {kind}, expected a plan, the path of one, or EpochPlans"
            )
        self._batching: Batching = self.series.batching if self.series else self.plan.metadata
        planned = self._batching.batch_size
        if batch_size is not None and batch_size != planned:
            raise InputError(
                f"batch size: got {batch_size}, but the plan has {planned}; leave it out, "
                f"or plan again with --batch-size {batch_size}"
            )
        self.rank = _check_rank(self._batching, rank, world_size)
        self._data = None if dataset is None else digest_of(dataset)
        if dataset is not None:
            check_rows(self.num_rows, dataset, getattr(self.series, "ends", ()))
            if self.series is None:
                warn_of_new_order(dataset)
        self.epoch = self._passes = 0
        self._completed: str | None = None  # digest of the plan before this epoch, by a state
        self._ever_set = self._awaited = False  # whether `set_epoch` was called: for the next pass
        self._placed = False  # whether the caller, not accelerate, or a state ever said the epoch
        self._loaded = False  # whether the next pass is that of a state
        self.start_at(0)
        if self.rank != ALL:
            self.batch_size = part_size(self._batching)

    @property
    def plan(self) -> Plan:
        """The plan of this epoch."""
        if self._plan is None:
            assert self.series is not None  # a sampler has a plan or a series
            self._plan = self.series.for_epoch(self.epoch)
        return self._plan

    @property
    def num_rows(self) -> int:
        """Rows of the data set."""
        return self.series.num_rows if self.series else self.plan.metadata.num_rows

    @checked
    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch. With a series, that is another plan, which is made now if necessary. If
        the state of a checkpoint must decide, it is made with the first batch. A single plan is the
        same in every epoch.

        Raises:
            InputError: a state within another epoch was loaded for the next pass.
        """
        counted = counted_by_accelerate()
        if counted and self._placed:
            return  # its count begins with 0 also after a restart
        self._check_due(self.epoch, self._start, epoch)
        self._placed = not counted
        self._ever_set = self._awaited = True
        self._complete = False
        if epoch == self.epoch and self._plan is not None:
            return
        if self.series is not None:
            self._plan = None if self.series.is_undecided(epoch) else self.series.for_epoch(epoch)
        if epoch != self.epoch:
            self.start_at(0)
        self.epoch = epoch

    @checked
    def start_at(self, position: int) -> None:
        """Let the next pass begin after ``position`` batches. Later ones begin at the first."""
        self.position = self._start = position
        self._complete = False

    def state_dict(self) -> dict[str, Any]:
        """Return where this sampler is, as JSON values: the digest of the plan that the epoch began
        with, or of the one before it until it is made, None if not known; the epoch, which is the
        next one if this one is complete; the number of batches that were taken, and which of the
        plan's these are; and a digest of the data set, if it is known. A loader with workers takes
        some batches before the training needs them."""
        return {
            "plan": self._completed if self._plan is None else self._plan.begun,
            "epoch": self.epoch + self._complete,
            "position": self.position,
            "data": self._data,
            **self._counts,
        }

    @checked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called: the next pass begins there, later ones at the first
        batch. If `set_epoch` was called for the next pass, the state must be of that epoch, or have
        no batches left or taken in an earlier one. (Loaders apply a state when a pass begins.)

        Raises:
            InputError: it was called with another plan, or, between epochs, in another run; with
                another data set; within an epoch, with another number of devices; the plan of its
                epoch is gone; or the next pass is another epoch.
        """
        if missing := {"plan", "epoch", "position", "parts"} - state.keys():
            raise InputError(
                f"state: has no {', '.join(sorted(missing))}; pass what state_dict() returned"
            )
        if state["parts"] != self._counts["parts"]:
            raise InputError(
                f"state: of a sampler of {state['parts']} parts, which counts other steps; make "
                "the sampler with the rank that it had"
            )
        check_arguments(state)
        epoch, position, plan = state["epoch"], state["position"], self._plan
        for name in ("world_size", "scope"):
            own = self._counts[name]
            if position and (other := state.get(name, own)) != own:
                raise InputError(
                    f"state: is of {position} batches with {name} {other!r}, but this sampler has "
                    f"{own!r} and counts others; resume with the plan and the devices that it "
                    "had, or between epochs"
                )
        due = self.epoch if self._awaited else epoch
        self._check_due(epoch, position, due)
        if (data := state.get("data")) is not None and data != self._data:
            raise InputError(
                f"data set: is another one than that of the state, or in another order (digest "
                f"{self._data}, expected {data}); go on with the data set of the checkpoint"
            )
        if self.series is not None:
            self.series.resume()
            plan = self.series.existing(epoch) if position and due == epoch else None
        expected = [None if plan is None else plan.begun]
        if self.series is not None and plan is None:
            # Between epochs, the digest is of the plan that was completed, or of the next one.
            epochs = sorted({max(0, epoch - (not position)), epoch})
            expected = [self.series.begun(number) for number in epochs]
        if expected[0] is not None and state["plan"] not in (None, *expected):
            raise InputError(
                f"state: is of {position} batches of the plan with digest {state['plan']}, but "
                f"this plan is {expected[0]}; go on with the plan of the checkpoint"
            )
        self._completed = state["plan"] if due == epoch + (position > 0) else None
        position = position if due == epoch else 0
        self._plan, self.epoch, self._placed, self._loaded = plan, due, True, True
        self.start_at(position)

    @property
    def _counts(self) -> dict[str, Any]:
        """What decides which batches a position counts; plans of one digest may differ in it."""
        parts = ALL if self.rank == ALL else "own"
        batching = self._batching
        return {"parts": parts, "world_size": batching.world_size, "scope": batching.scope}

    def _check_due(self, epoch: int, position: int, due: int) -> None:
        """Require that a state is of the epoch that is due, or has no batches left or taken in an
        earlier one."""
        if due != epoch and position and (epoch > due or position < len(self)):
            raise InputError(
                f"state: is of {position} batches of epoch {epoch}, but set_epoch({due}) was "
                f"called; resume with set_epoch({epoch})"
            )

    def __getattr__(self, name: str) -> Any:
        if name != "batch_size":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(
            'batch_size: not known with rank="all"; a trainer that asks for it trains on several '
            "data sets: pass PlannedEpochs the same dictionary"
        )

    def __call__(self, dataset: Sized, batch_size: int, **options: Any) -> Any:
        """Return this sampler, for sentence-transformers, which calls its ``batch_sampler`` with
        the data set, the batch size per device and more that the plan decides. For an evaluation,
        return random batches.

        Raises:
            InputError: the data set or the batch size is not the plan's, or this is the part
                of one device, most of which Accelerate would leave out.
        """
        if (training := asked_for_training()) is False:
            return random_batches(dataset, batch_size=batch_size, **options)
        if self._batching.world_size > 1 and self.rank != ALL:
            raise InputError(
                f"rank: got {self.rank}, but sentence-transformers distributes the batches of all "
                'devices; pass rank="all"'
            )
        check_loader(self._batching, self.num_rows, dataset, batch_size)
        if self.series is None:
            warn_of_new_order(dataset)
        if training:
            check_same_everywhere(self, dataset)
        if training and self.series is None:
            from batchplan.training.resuming import follow  # samplers need only NumPy

            follow(asking_trainer(), self, dataset)
        return self

    def __len__(self) -> int:
        batching = self._batching
        if self._plan is None and self.series is not None:
            batches = self.series.num_batches()  # known before the first plan
        else:
            batches = len(self.plan)
        steps = batches // batches_per_step(batching.world_size, batching.scope)
        return steps * batching.world_size if self.rank == ALL else steps

    def __getitem__(self, step: int) -> list[int]:
        """The rows of a step: int numbers, in the order of the plan.

        Raises:
            IndexError: there is no such step.
        """
        step, rank = range(len(self))[step], self.rank
        devices = self._batching.world_size
        if rank == ALL:
            step, rank = divmod(step, devices)
        shared = self._batching.scope == "global"
        batch = step if shared else step * devices + rank
        plan, series = self.plan, self.series
        while series and (turn := series.turn(self.epoch)) is not None and batch >= turn:
            plan = self._plan = series.for_rest(self.epoch)
        start, stop = plan.batch_offsets[batch : batch + 2].tolist()
        if shared:
            offsets = share_offsets(stop - start, devices)
            start, stop = start + offsets[rank], start + offsets[rank + 1]
        rows: list[int] = plan.rows[start:stop].tolist()
        return rows

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start, 0
        self._awaited = self._complete = False
        self._passes += 1
        if self._loaded:
            check_same_place(f"step {start} of epoch {self.epoch}")
            self._loaded = False
        check_dealing(self._batching, self.rank == ALL)
        if self._passes == 2 and self.series is not None and not self._ever_set:
            warnings.warn(
                f"sampler: this pass has the plan of epoch {self.epoch} again; call "
                "sampler.set_epoch(epoch) before each pass",
                stacklevel=2,
            )
        for step in range(start, len(self)):
            self.position = step + 1
            yield self[step]
        self.position, self._complete = 0, True


def random_batches(dataset: Sized, **options: Any) -> Any:
    """Return the batches that a SentenceTransformerTrainer makes without a plan.

    Args:
        dataset: the data set to draw from.
        options: what the trainer passes to its ``batch_sampler``.
    """
    from torch.utils.data import BatchSampler, RandomSampler  # samplers of plans need only NumPy

    order = RandomSampler(dataset, generator=options.get("generator"))
    return BatchSampler(order, options["batch_size"], options.get("drop_last", False))


def sampler_of(loader: Any) -> PlanBatchSampler | None:
    """Return the `PlanBatchSampler` that a loader takes batches from, if it has one."""
    loader = getattr(loader, "prepared", loader)
    sampler = getattr(loader, "batch_sampler", None)
    while sampler is not None and not isinstance(sampler, PlanBatchSampler):
        sampler = getattr(sampler, "batch_sampler", None)
    return sampler


def plan_of(loader: Any) -> str | None:
    """Return the digest of the plan that a loader takes batches from, if that is known."""
    sampler = sampler_of(loader)
    return None if sampler is None else sampler.plan.begun


def _check_rank(
    batching: Batching, rank: SupportsIndex | str | None, world_size: SupportsIndex | None
) -> int | Any:
    """Return the rank as a number, or "all"; 0 if there is one device and none is given."""
    devices, group = batching.world_size, process_group()
    joined = group.get_world_size() if group else 1
    if devices == joined == 1 and rank is None and world_size is None:
        return 0
    if world_size == devices:
        if isinstance(rank, str) and rank == ALL:
            return ALL
        if isinstance(rank, SupportsIndex) and not isinstance(rank, bool):
            number = operator.index(rank)
            if group and joined == devices and group.get_rank() != number:
                raise InputError(
                    f"rank: got {number}, but torch.distributed says that this is rank "
                    f"{group.get_rank()} of {devices}; pass that (LOCAL_RANK is of one machine)"
                )
            if 0 <= number < devices:
                return number
    raise InputError(
        f"rank: got {rank!r} with world_size={world_size!r}, but the plan is for {devices} "
        f"device{'s' * (devices > 1)}; pass world_size={devices} and a rank from 0 to "
        f"{devices - 1}, or plan again with --world-size"
    )
