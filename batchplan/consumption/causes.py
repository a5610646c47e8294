"""Why steps differ from a plan: a rule for each cause, in the table `CAUSES`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from batchplan.consumption.epochs import DIFFERS, MISSING, Epoch
from batchplan.consumption.traces import key
from batchplan.typing import Int64Array


@dataclass(frozen=True)
class Cause:
    """A cause of steps that differ from the plan.

    Attributes:
        name: two or three words.
        sentence: what happened.
        mend: what to do.
        rule: whether it is what happened in an epoch that is not exact: details, or None.
        general: whether it is left out where a special cause applies.
    """

    name: str
    sentence: str
    mend: str
    rule: Callable[[Epoch], str | None]
    general: bool = False


@dataclass(frozen=True)
class Finding:
    """A cause that applies to an epoch."""

    cause: Cause
    detail: str


def causes_of(epoch: Epoch) -> Iterator[Finding]:
    """All causes that the trace of an epoch is evidence of, the most special first."""
    special = list(_special(epoch))
    for number, dealt in epoch.others.items():
        if special:
            break
        other = replace(epoch, dealt=dealt, others={}, partial=True)
        if (other.exact and any(epoch.seen)) or (special := list(_special(other))):
            detail = f"epoch {epoch.number} got that of epoch {number}"
            special.insert(0, Finding(_BY_RULE[_last_plan], detail))
    yield from special or _apply([cause for cause in CAUSES if cause.general], epoch)


def _special(epoch: Epoch) -> Iterator[Finding]:
    return _apply([cause for cause in CAUSES if not cause.general], epoch)


def _apply(causes: Iterable[Cause], epoch: Epoch) -> Iterator[Finding]:
    for cause in causes:
        if (detail := cause.rule(epoch)) is not None:
            yield Finding(cause, detail)


def _zero_steps(epoch: Epoch) -> str | None:
    if any(epoch.seen) or not epoch.ended():
        return None
    return f"the plan has {len(epoch.wanted[0])}"


def _other_devices(epoch: Epoch) -> str | None:
    if len(epoch.wanted) == epoch.devices:
        return None
    return f"the plan is for {len(epoch.wanted)} devices, {epoch.devices} trained"


def _single_rows(epoch: Epoch) -> str | None:
    seen, wanted = _sizes(epoch)
    return f"those of the plan have {wanted}" if seen == 1 < wanted else None


def _whole_plan(epoch: Epoch) -> str | None:
    steps = [epoch.steps(rank) for rank in range(epoch.devices)]
    whole = epoch.devices > 1 and all(own == epoch.order[: len(own)] for own in steps)
    return f"{len(epoch.order)} batches" if whole and min(map(len, steps)) > 1 else None


def _same_part(epoch: Epoch) -> str | None:
    steps = [epoch.steps(rank) for rank in range(epoch.devices)]
    first = steps[0]
    same = epoch.devices > 1 and len(first) > 0 and all(own == first for own in steps)
    if not same or _whole_plan(epoch) is not None:
        return None
    return next(
        (f"that of rank {rank}" for rank, own in enumerate(epoch.wanted)
         if own[epoch.first : epoch.first + len(first)] == first),
        None,
    )  # fmt: skip


def _dealt_twice(epoch: Epoch) -> str | None:
    devices, wanted = epoch.devices, epoch.wanted
    count, more = divmod(len(wanted[0]), devices)
    if epoch.first or len(wanted) != devices or devices == 1 or count < 2:
        return None
    for rank in range(devices):
        again = epoch.expected[rank][rank::devices][:count]
        own = epoch.rows(rank)[:count]
        if not own or len(epoch.seen[rank]) > count + bool(more):
            return None
        *before, (part, rows) = zip(again[: len(own)], own, strict=True)
        if any(key(part) != key(rows) for part, rows in before) or not np.isin(part, rows).all():
            return None  # the last one may be filled up
    rows = epoch.plan.rows
    seen = np.intersect1d(
        rows, _flat([batch for rank in range(devices) for batch in epoch.rows(rank)])
    )
    return f"{len(np.unique(rows)) - len(seen):,} of {rows.size:,} rows are lost"


def _dealt_by_row(epoch: Epoch) -> str | None:
    devices = epoch.devices
    if devices == 1 or epoch.first:
        return None
    flat = np.concatenate(_in_turn(epoch.expected))
    for rank in range(devices):
        own, again = _flat(epoch.rows(rank)), flat[rank::devices]
        count = min(len(own), len(again))
        if count < min(len(again), 2 * devices) or not np.array_equal(own[:count], again[:count]):
            return None
    return f"rank r got rows r, r + {devices}, … of the plan"


def _restarted(epoch: Epoch) -> str | None:
    begun = {run.begun for run in epoch.passes}
    if len(begun) != 1 or not (start := begun.pop()):
        return None
    for wanted, seen in zip(epoch.wanted, epoch.seen, strict=False):
        after = [seen[step] for step in sorted(seen) if step >= start]
        if not after or after != wanted[: len(after)]:
            return None
    return f"step {start} of epoch {epoch.number} got the batches of step 0"


def _last_plan(epoch: Epoch) -> str | None:
    places = [(rank, step + epoch.first) for rank, step in np.argwhere(epoch.grid == DIFFERS)]
    for number, dealt in epoch.others.items():
        wanted = dealt.keys
        if places and all(
            rank < min(len(wanted), epoch.devices)
            and wanted[rank][step : step + 1] == [epoch.seen[rank][step]]
            for rank, step in places
        ):
            first = min(step for _, step in places)
            return f"epoch {epoch.number} got that of epoch {number} from step {first} on"
    return None


def _other_plan(epoch: Epoch) -> str | None:
    other = sorted(set().union(*(run.plans for run in epoch.passes)) - epoch.known)
    return f"recorded {other[0]}, expected {epoch.plan.digest}" if other else None


def _other_rows(epoch: Epoch) -> str | None:
    rows = _flat([rows for own in _all_rows(epoch) for rows in own])
    other = np.unique(rows[epoch.dealt.find(rows) < 0])
    return f"{other.size:,}, such as {other[0]}" if other.size else None


def _padded(epoch: Epoch) -> str | None:
    parts = _in_turn(epoch.expected)
    most = max(map(len, parts))
    first = {int(row) for part in parts[: 2 * epoch.devices] for row in part}
    added = 0
    for rank in range(min(epoch.devices, len(epoch.expected))):
        wanted = epoch.expected[rank]
        for step, rows in epoch.passes[rank].rows.items():
            if step < len(wanted) - 1 or epoch.grid[rank, step - epoch.first] != DIFFERS:
                continue
            own = set(wanted[step].tolist()) if step < len(wanted) else set()
            extra = set(rows.tolist()) - own
            if len(rows) > most or not own <= set(rows.tolist()) or not extra or not extra <= first:
                return None
            added += len(rows) - len(own)
    return f"{added:,} rows" if added else None


def _batch_size(epoch: Epoch) -> str | None:
    seen, wanted = _sizes(epoch)
    if seen in (0, 1, wanted) or (seen < wanted and max(map(len, epoch.seen)) < 2):
        return None
    many = seen // wanted
    flat = _flat(_in_turn(_all_rows(epoch)))
    ways = [(flat, _flat(_in_turn(epoch.expected)))]
    ways += [(_flat(epoch.rows(0)), _flat(epoch.expected[0]))]
    planned = any(len(own) and np.array_equal(own, whole[: len(own)]) for own, whole in ways)
    batches = f", {many} batches of the plan" * (planned and seen == many * wanted)
    return f"{seen} rows{batches}, expected {wanted}"


def _unequal(epoch: Epoch) -> str | None:
    counts = [run.steps for run in epoch.passes]
    early = [
        count
        for run, count in zip(epoch.passes, counts, strict=True)
        if count < max(counts) and (run.ended or epoch.over)
    ]
    if not early and max(counts) - min(counts) < 2:
        if not _waits(epoch):
            return None
        counts = [len(own) for own in epoch.wanted]
    return f"{', '.join(map(str, counts))} steps on ranks 0 to {len(counts) - 1}"


def _waits(epoch: Epoch) -> bool:
    """Whether a rank came as far as one that has ended its part, and has a step more in its own,
    which did not begin."""
    runs = list(zip(epoch.passes, map(len, epoch.wanted), strict=False))
    done = {part for run, part in runs if run.ended and run.steps == part}
    return any(not run.ended and run.steps in done and run.steps < part for run, part in runs)


def _tail_dropped(epoch: Epoch) -> str | None:
    last = max(map(len, epoch.wanted)) - 1
    missing = np.argwhere(epoch.grid == MISSING)
    if not epoch.is_prefix or not epoch.ended() or (missing[:, 1] + epoch.first < last).any():
        return None
    if any(len(epoch.wanted[rank]) <= last for rank in missing[:, 0]):
        return None  # there was no such step
    lost = sum(len(epoch.expected[rank][last]) for rank in missing[:, 0])
    return f"{lost:,} rows of the last step"


def _workers(epoch: Epoch) -> str | None:
    """Each worker yields rows in the order of the plan, and batches of workers come in turn. None
    is lost, as is where data sets take turns."""
    whole = sum(len(own) for steps in epoch.expected for own in steps[epoch.first :])
    if sum(len(own) for steps in _all_rows(epoch) for own in steps) < whole:
        return None
    if _other_rows(epoch) or not _of_the_plan(epoch):
        return None
    first = epoch.dealt.rows[1]
    most = 1
    for rank in range(epoch.devices):
        batches = [first[epoch.dealt.find(own)] for own in epoch.rows(rank) if len(own)]
        last: list[tuple[int, int]] = []  # sorted: the place each worker came to, and the worker
        owners = []
        for places in batches:
            if (np.diff(places) <= 0).any() or len(last) > 1 + len(batches) // 4:
                return None
            behind = bisect_left(last, (int(places[0]), 0))
            owner = last.pop(behind - 1)[1] if behind else len(last)
            insort(last, (int(places[-1]), owner))
            owners.append(owner)
        count, whose = len(last), np.array(owners)
        if count > 1:
            stray = np.bincount(whose).min() * count * 4 < len(batches)
            if stray or (whose[count:] == whose[:-count]).mean() < 0.5:
                return None
        most = max(most, count)
    return f"{most} workers; {_intact(epoch)}" if most > 1 else None


def _stopped(epoch: Epoch) -> str | None:
    if not epoch.is_prefix:
        return None
    steps = min(run.steps for run in epoch.passes)
    return f"epoch {epoch.number} has {steps} of {len(epoch.wanted[0])} steps"


def _reordered(epoch: Epoch) -> str | None:
    whole = sum(map(len, epoch.seen))
    return _intact(epoch) if not epoch.is_prefix and epoch.intact[0] == whole else None


def _shuffled(epoch: Epoch) -> str | None:
    special = epoch.is_prefix or _reordered(epoch)
    return _intact(epoch) if not special and _of_the_plan(epoch) else None


def _differs(epoch: Epoch) -> str | None:
    others = (_stopped, _reordered, _shuffled)
    return None if any(rule(epoch) for rule in others) else _intact(epoch)


def _of_the_plan(epoch: Epoch) -> bool:
    """Whether no row was seen more often than the plan holds it, but in the last step of a rank,
    which loaders fill up."""
    seen, counts = np.unique(
        _flat([rows for steps in _all_rows(epoch) for rows in steps[:-1]]), return_counts=True
    )
    places = epoch.dealt.find(seen)
    return bool((places >= 0).all() and (counts <= epoch.dealt.rows[2][places]).all())


def _all_rows(epoch: Epoch) -> list[list[Int64Array]]:
    return [epoch.rows(rank) for rank in range(epoch.devices)]


def _intact(epoch: Epoch) -> str:
    intact, of = epoch.intact
    return f"{intact:,} of {of:,} batches of the plan are intact"


def _sizes(epoch: Epoch) -> tuple[int, int]:
    """The most rows of a step, seen and expected."""
    seen = max((len(rows) for run in epoch.passes for rows in run.rows.values()), default=0)
    return seen, max(len(rows) for steps in epoch.expected for rows in steps)


def _in_turn(steps: list[list[Int64Array]]) -> list[Int64Array]:
    """What ranks see, step after step."""
    longest = max(map(len, steps))
    return [own[step] for step in range(longest) for own in steps if step < len(own)]


def _flat(parts: list[Int64Array]) -> Int64Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


_OWN_PARTS = (
    'deal the plan out once: an adapter of docs/frameworks.md, or rank="all" under Accelerate'
)
_AS_PLANNED = (
    "set the trainer's batch size per device to the plan's, or plan again with --batch-size"
)

#: A rule for each cause, the most special first.
CAUSES = (
    Cause(
        "zero steps",
        "The loader yielded no batch, without an error.",
        "set the batch size per device to the plan's, and the number of devices",
        _zero_steps,
    ),
    Cause(
        "single rows",
        "Each step trained on a single row.",
        "pass the sampler as batch_sampler; with sentence-transformers, batch_sampler=plans",
        _single_rows,
    ),
    Cause(
        "another number of devices",
        "The plan is for more devices than trained, or for fewer.",
        "plan again with --world-size",
        _other_devices,
    ),
    Cause(
        "the whole plan on every rank",
        "Every rank trained on all batches.",
        "pass rank and world_size to PlanBatchSampler, from torch.distributed",
        _whole_plan,
    ),
    Cause(
        "the same part on every rank",
        "All ranks trained on the part of one.",
        "pass each process its own rank",
        _same_part,
    ),
    Cause(
        "dealt out twice",
        "The part of a rank was dealt out again.",
        _OWN_PARTS,
        _dealt_twice,
    ),
    Cause(
        "dealt out row by row",
        "A DistributedSampler dealt single rows out.",
        "pass the plan as batch_sampler, and no DistributedSampler",
        _dealt_by_row,
    ),
    Cause(
        "last epoch's plan",
        "An epoch trained on the plan of another.",
        "call set_epoch on the PlanBatchSampler itself, also after a restart, or use an adapter",
        _last_plan,
    ),
    Cause(
        "restarted at batch 0",
        "A resumed run began the epoch's plan again.",
        "store and load the loader's state, or use an adapter, which does",
        _restarted,
    ),
    Cause(
        "another plan",
        "The loader had a plan that is none of these.",
        "give the plans of this run, or let it go on with its own",
        _other_plan,
    ),
    Cause(
        "other rows",
        "Steps saw rows that are not in the plan.",
        "train on the data that was planned, in the same order",
        _other_rows,
    ),
    Cause(
        "padded from the first batches",
        "Rows of the first batches filled the last step.",
        'plan with --world-size, and let the sampler have no batch_size (rank="all")',
        _padded,
    ),
    Cause(
        "unequal steps",
        "Ranks differ in their number of steps: DDP would hang.",
        "plan with --world-size for as many devices as train",
        _unequal,
    ),
    Cause(
        "tail dropped",
        "The last step is missing.",
        "set drop_last=False (dataloader_drop_last), or plan with --tail drop or --tail pad",
        _tail_dropped,
    ),
    Cause(
        "another batch size",
        "Steps are larger or smaller than the plan's batches.",
        _AS_PLANNED,
        _batch_size,
    ),
    Cause(
        "split across workers",
        "Workers read shards that were not written for them.",
        "batchplan materialize --workers K, with the loader's num_workers",
        _workers,
    ),
    Cause(
        "ended early",
        "The trace ends before the plan.",
        "let the epoch end; --partial accepts a run that goes on",
        _stopped,
        general=True,
    ),
    Cause(
        "another order",
        "Batches are intact, but missing or in other places.",
        "shuffle no batches, and join several data sets into one plan",
        _reordered,
        general=True,
    ),
    Cause(
        "shuffled",
        "Rows were shuffled into other batches.",
        "pass the plan as batch_sampler, shuffle nothing; Lightning: use_distributed_sampler=False",
        _shuffled,
        general=True,
    ),
    Cause(
        "no known pattern",
        "Steps differ in another way.",
        "look at the rows of the first step that differs",
        _differs,
        general=True,
    ),
)
_BY_RULE = {cause.rule: cause for cause in CAUSES}
