"""The rules of `CAUSES`: each looks for one pattern in an epoch that is not exact.

A rule returns details for the user if it finds its pattern, else None.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

import numpy as np

from batchplan.consumption.epochs import DIFFERS, MISSING, Epoch, in_turn
from batchplan.consumption.traces import key
from batchplan.typing import Int64Array


def zero_steps(epoch: Epoch) -> str | None:
    """The loader ended without a batch."""
    nothing = epoch.ended and not any(epoch.seen)
    return f"the plan has {len(epoch.dealt.keys[0])}" if nothing else None


def single_rows(epoch: Epoch) -> str | None:
    """Steps have one row, but the batches of the plan have more."""
    seen, wanted = _sizes(epoch)
    return f"batches of the plan have {wanted}" if seen == 1 < wanted else None


def other_devices(epoch: Epoch) -> str | None:
    """The plan is for another number of devices."""
    planned = len(epoch.dealt.keys)
    says = f"the plan is for {planned} devices, {epoch.devices} trained"
    return says if planned != epoch.devices else None


def whole_plan(epoch: Epoch) -> str | None:
    """Each rank saw the batches of all ranks."""
    order = epoch.dealt.order
    whole = epoch.devices > 1 and all(own == order[: len(own)] for own in epoch.seen)
    return f"{len(order)} batches" if whole and min(map(len, epoch.seen)) > 1 else None


def same_part(epoch: Epoch) -> str | None:
    """All ranks saw the batches of one rank."""
    first, *others = epoch.seen
    if not first or not others or any(own != first for own in others) or whole_plan(epoch):
        return None
    for rank, own in enumerate(epoch.dealt.keys):
        if own[epoch.first : epoch.first + len(first)] == first:
            return f"all ranks saw the batches of rank {rank}"
    return None


def dealt_twice(epoch: Epoch) -> str | None:
    """Each of W ranks saw every W-th of its own batches."""
    devices, wanted = epoch.devices, epoch.dealt.steps
    count, more = divmod(len(wanted[0]), devices)
    if epoch.first or len(wanted) != devices or devices == 1 or count < 2:
        return None
    for rank in range(devices):
        again, own = wanted[rank][rank::devices][:count], epoch.rows[rank][:count]
        if not own or len(epoch.seen[rank]) > count + bool(more):
            return None
        *before, (part, rows) = zip(again[: len(own)], own, strict=True)
        # The loader may have filled up the last batch.
        if any(key(part) != key(rows) for part, rows in before) or not np.isin(part, rows).all():
            return None
    rows = epoch.dealt.plan.rows
    seen = np.intersect1d(rows, _flat(in_turn(epoch.rows)))
    return f"{len(np.unique(rows)) - len(seen):,} of {rows.size:,} rows are lost"


def dealt_by_row(epoch: Epoch) -> str | None:
    """Each of W ranks saw every W-th row of the plan."""
    devices = epoch.devices
    if devices == 1 or epoch.first:
        return None
    flat = _flat(in_turn(epoch.dealt.steps))
    for rank in range(devices):
        own, again = _flat(epoch.rows[rank]), flat[rank::devices]
        count = min(len(own), len(again))
        if count < min(len(again), 2 * devices) or not np.array_equal(own[:count], again[:count]):
            return None
    return f"rank r got rows r, r + {devices}, … of the plan"


def restarted(epoch: Epoch) -> str | None:
    """After a restart within the epoch, all ranks began its plan again."""
    begun = {run.begun for run in epoch.passes}
    if len(begun) != 1 or not (start := begun.pop()):
        return None
    for wanted, run in zip(epoch.dealt.keys, epoch.passes, strict=False):
        after = [seen for step, seen in run.keys.items() if step >= start]
        if not after or after != wanted[: len(after)]:
            return None
    return f"step {start} of epoch {epoch.number} got the batches of step 0"


def last_plan(epoch: Epoch) -> str | None:
    """All steps that differ are from another epoch's plan."""
    places = [(rank, step + epoch.first) for rank, step in np.argwhere(epoch.grid == DIFFERS)]
    for number, other in epoch.others.items():
        ranks = min(len(other.keys), epoch.devices)
        if places and all(
            rank < ranks and other.keys[rank][step : step + 1] == [epoch.passes[rank].keys[step]]
            for rank, step in places
        ):
            first = min(step for _, step in places)
            return f"epoch {epoch.number} got the plan of epoch {number} from step {first} on"
    return None


def other_plan(epoch: Epoch) -> str | None:
    """The recorder had a plan that is not among the given plans."""
    other = sorted(set().union(*(run.plans for run in epoch.passes)) - epoch.known)
    return f"recorded {other[0]}, expected {epoch.dealt.plan.digest}" if other else None


def other_rows(epoch: Epoch) -> str | None:
    """Some rows are not in the plan."""
    rows = _flat(in_turn(epoch.rows))
    other = np.unique(rows[epoch.dealt.find(rows) < 0])
    return f"{other.size:,}, such as {other[0]}" if other.size else None


def padded(epoch: Epoch) -> str | None:
    """The last steps have rows of the first two steps in addition to their own."""
    parts = in_turn(epoch.dealt.steps)
    most, first = max(map(len, parts)), set(_flat(parts[: 2 * epoch.devices]).tolist())
    added = 0
    for rank, wanted in enumerate(epoch.dealt.steps[: epoch.devices]):
        for step, rows in epoch.passes[rank].rows.items():
            if step < len(wanted) - 1 or epoch.grid[rank, step - epoch.first] != DIFFERS:
                continue
            own = set(wanted[step].tolist()) if step < len(wanted) else set()
            extra = set(rows.tolist()) - own
            if len(rows) > most or not own <= set(rows.tolist()) or not extra or not extra <= first:
                return None
            added += len(rows) - len(own)
    return f"{added:,} rows" if added else None


def batch_size(epoch: Epoch) -> str | None:
    """Steps have another number of rows."""
    seen, wanted = _sizes(epoch)
    if seen in (0, 1, wanted) or (seen < wanted and max(map(len, epoch.seen)) < 2):
        return None
    return f"{seen} rows, expected {wanted}"


def unequal(epoch: Epoch) -> str | None:
    """A rank ended before another."""
    counts = [run.steps for run in epoch.passes]
    early = any(run.steps < max(counts) and (run.ended or epoch.over) for run in epoch.passes)
    if not early and max(counts) - min(counts) < 2:
        return None
    return f"{', '.join(map(str, counts))} steps on ranks 0 to {len(counts) - 1}"


def tail_dropped(epoch: Epoch) -> str | None:
    """Only the last step of the plan is missing."""
    if not epoch.is_prefix or not epoch.ended:
        return None
    wanted = epoch.dealt.steps
    last = max(map(len, wanted)) - 1
    missing = np.argwhere(epoch.grid == MISSING)
    if (missing[:, 1] + epoch.first < last).any():
        return None
    if any(len(wanted[rank]) <= last for rank in missing[:, 0]):
        return None  # there was no such step
    lost = sum(len(wanted[rank][last]) for rank in missing[:, 0])
    return f"{lost:,} rows of the last step"


def workers(epoch: Epoch) -> str | None:
    """Batches come from several streams that take turns, each in the order of the plan.

    No row is lost, otherwise these may be several data sets that take turns.
    """
    whole = sum(len(own) for steps in epoch.dealt.steps for own in steps[epoch.first :])
    if len(_flat(in_turn(epoch.rows))) < whole or not _of_the_plan(epoch) or other_rows(epoch):
        return None
    first = epoch.dealt.rows[1]
    counts = []
    for steps in epoch.rows:
        count = _streams([first[epoch.dealt.find(own)] for own in steps if len(own)])
        if count is None:
            return None
        counts.append(count)
    return f"{max(counts)} workers; {intact(epoch)}" if max(counts) > 1 else None


def _streams(batches: list[Int64Array]) -> int | None:
    """Return from how many streams the batches come in turn; None if they do not.

    Args:
        batches: int64 (rows,) each, the places of the rows in the plan. They rise in a stream.
    """
    last: list[tuple[int, int]] = []  # sorted: the place that each stream has reached, its number
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
    return count


def stopped(epoch: Epoch) -> str | None:
    """All recorded steps are exact."""
    steps = min(run.steps for run in epoch.passes)
    says = f"epoch {epoch.number} has {steps} of {len(epoch.dealt.keys[0])} steps"
    return says if epoch.is_prefix else None


def reordered(epoch: Epoch) -> str | None:
    """Every step saw some batch of the plan."""
    return intact(epoch) if epoch.intact[0] == sum(map(len, epoch.seen)) else None


def shuffled(epoch: Epoch) -> str | None:
    """Steps have the rows of the plan, each at most as often as the plan has it."""
    return intact(epoch) if _of_the_plan(epoch) else None


def intact(epoch: Epoch) -> str:
    """Say how many batches of the plan some step saw whole."""
    count, of = epoch.intact
    return f"{count:,} of {of:,} batches of the plan are intact"


def _of_the_plan(epoch: Epoch) -> bool:
    """Whether no row was seen more often than the plan has it.

    The last step of each rank is ignored, because loaders fill it up.
    """
    rows = _flat(in_turn([steps[:-1] for steps in epoch.rows]))
    seen, counts = np.unique(rows, return_counts=True)
    places = epoch.dealt.find(seen)
    return bool((places >= 0).all() and (counts <= epoch.dealt.rows[2][places]).all())


def _sizes(epoch: Epoch) -> tuple[int, int]:
    """Return the largest number of rows of a step, seen and expected."""
    seen = max((len(rows) for steps in epoch.rows for rows in steps), default=0)
    return seen, max(len(rows) for steps in epoch.dealt.steps for rows in steps)


def _flat(parts: Iterable[Int64Array]) -> Int64Array:
    return np.concatenate([np.zeros(0, np.int64), *parts])
