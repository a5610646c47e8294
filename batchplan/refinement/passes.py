"""Passes over pairs of batches that exchange rows to raise the loss."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from batchplan.graph.affinity import Affinity
from batchplan.refinement.kernel import Search
from batchplan.refinement.objective import Objective
from batchplan.refinement.rounds import improve_round
from batchplan.refinement.schedule import Visits, in_rounds, promising_pairs
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import single_threads
from batchplan.typing import Int64Array

_BLOCK_BYTES = 1 << 30  # device memory for the blocks of all threads


@dataclass(frozen=True, kw_only=True)
class Passes:
    """How long to refine.

    Attributes:
        most: largest number of passes; 0 refines nothing.
        least_gain: stop after a pass that raises the mean loss by less, in nats.
        seconds: start no round after this time; None for no limit. Only with this setting do
            results depend on the speed of the machine.
        partners: number of batches that each batch is paired with in a pass, at most.
        search: how hard to try with each pair.
    """

    most: int
    least_gain: float = 0.0
    seconds: float | None = None
    partners: int = 12
    search: Search = field(default_factory=Search)


@dataclass(frozen=True, eq=False)
class Refined:
    """The result of passes.

    Attributes:
        rows: int64 (entries,), the new rows of all batches.
        gain: the rise of the sum of the losses of all rows, in both directions, in nats.
        passes: number of passes.
    """

    rows: Int64Array
    gain: float
    passes: int


@full_float32()
def refine_rows(
    rows: Int64Array,
    offsets: Int64Array,
    objective: Objective,
    affinity: Affinity,
    runtime: Runtime,
    passes: Passes,
) -> Refined:
    """Raise the objective by swaps between batches; it never falls.

    Args:
        rows: int64 (entries,), the rows of all batches, none twice within a batch.
        offsets: int64 (batches + 1,), where each batch starts in them.
        objective: what to raise.
        affinity: the graph that shows which batches have rows to exchange.
        runtime: device, progress; the number of threads changes only the time.
        passes: how long to refine.
    """
    rows = rows.copy()
    objective = _placed(objective, runtime)
    count = len(offsets) - 1
    masked = objective.guard.active or len(np.unique(rows)) < len(rows)
    visits = Visits(np.full(count, -1, np.int64))
    end = None if passes.seconds is None else time.monotonic() + passes.seconds
    clock, done, total = 0, 0, 0.0
    least = passes.least_gain * 2 * len(rows)
    with single_threads() as pool, runtime.stage("refine", passes.most) as advance:
        while done < passes.most and count > 1:
            candidates = promising_pairs(affinity, rows, offsets, visits, passes.partners)
            rounds = in_rounds(candidates, count, 2 * passes.partners)
            gained, helped, seen = 0.0, False, []
            for pairs in rounds:
                if end is not None and time.monotonic() > end:
                    break
                gain, changed = improve_round(
                    rows, offsets, pairs, objective, masked, passes.search, pool
                )
                seen.append(np.full(len(pairs), clock))
                visits.changed[pairs[changed]] = clock + 1  # later than the visit, so visit again
                clock += 2
                gained += gain
                helped |= bool(changed.any())
            if seen:
                visits.record(np.concatenate(rounds[: len(seen)]), np.concatenate(seen))
            done += 1
            total += gained
            advance(1)
            # With a guard, a useful pass may lower the loss of the pairs that count, hence `abs`.
            if len(seen) < len(rounds) or not helped or abs(gained) < least:
                break
        advance(passes.most - done)
    return Refined(rows, total, done)


def _placed(objective: Objective, runtime: Runtime) -> Objective:
    """The objective with its rows on the device of the runtime, which computes the terms of blocks.

    Raises:
        ResourceError: the device lacks memory, or does not exist.
    """
    device = runtime.torch_device()
    x, reference = objective.x, objective.reference
    if device.type == x.device.type or objective.lists is not None:
        return objective
    rows = {id(side): side for side in (*objective.sides, *(reference or ()))}  # y may be x
    numbers = sum(side.numel() for side in (*rows.values(), objective.negatives))
    need = _BLOCK_BYTES + 4 * numbers
    what = f"refine: the blocks of {len(x)} rows of {x.shape[1]} dimensions"
    runtime.require_memory(need, what, "use --device cpu", device)
    there = {key: side.to(device) for key, side in rows.items()}
    x, y = (there[id(side)] for side in objective.sides)
    reference = reference and (there[id(reference[0])], there[id(reference[1])])
    missing = objective.missing
    return replace(
        objective, x=x, y=y, reference=reference, negatives=objective.negatives.to(device),
        missing=None if missing is None else missing.to(device),
    )  # fmt: skip
