"""Passes over pairs of batches that exchange rows to raise the loss."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from batchplan.graph.affinity import Affinity
from batchplan.refinement.kernel import Search
from batchplan.refinement.objective import Objective
from batchplan.refinement.rounded import Rounded, round_rows
from batchplan.refinement.rounds import improve_round, loss_of
from batchplan.refinement.schedule import Visits, in_rounds, promising_pairs
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import single_threads
from batchplan.typing import Int64Array

_PARTNERS = 12  # batches that each batch is paired with in a pass, at most
_BLOCK_BYTES = 1 << 30  # device memory for the blocks of all threads


class Refined(NamedTuple):
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
    passes: int,
) -> Refined:
    """Raise the objective by swaps between batches; it never falls.

    Args:
        rows: int64 (entries,), the rows of all batches, none twice within a batch.
        offsets: int64 (batches + 1,), where each batch starts in them.
        objective: what to raise.
        affinity: the graph that shows which batches have rows to exchange.
        runtime: device, progress; the number of threads changes only the time.
        passes: largest number of passes. It stops after a pass that changes nothing.
    """
    objective = _placed(objective, runtime)
    masked = objective.guard.active or len(np.unique(rows)) < len(rows)
    with single_threads() as pool:

        def pass_over(objective: Objective) -> Refined:
            with runtime.stage("refine", passes) as advance:
                return _refined(rows, offsets, objective, affinity, masked, passes, pool, advance)

        rounded = _rounded(objective, pool) if passes and len(offsets) > 2 else None
        if rounded is None:
            return pass_over(objective)
        found = pass_over(replace(objective, rounded=rounded))
        before, after = (
            loss_of(own, offsets, objective, masked, pool) for own in (rows, found.rows)
        )
        if after.broken == before.broken and after.worth < before.worth:
            return pass_over(objective)  # rounding hid that swaps lower the loss
    return found._replace(gain=after.loss - before.loss)


def _refined(
    rows: Int64Array,
    offsets: Int64Array,
    objective: Objective,
    affinity: Affinity,
    masked: bool,
    passes: int,
    pool: Executor,
    advance: Callable[[int], None],
) -> Refined:
    """`refine_rows` without its checks; ``masked`` as of `improve_round`."""
    rows, count = rows.copy(), len(offsets) - 1
    visits = Visits(np.full(count, -1, np.int64))
    clock, done, total = 0, 0, 0.0
    while done < passes and count > 1:
        candidates = promising_pairs(affinity, rows, offsets, visits, _PARTNERS)
        rounds = in_rounds(candidates, count, 2 * _PARTNERS)
        gained, helped, seen = 0.0, False, []
        for pairs in rounds:
            gain, changed = improve_round(rows, offsets, pairs, objective, masked, Search(), pool)
            seen.append(np.full(len(pairs), clock))
            visits.changed[pairs[changed]] = clock + 1  # later than the visit, so visit again
            clock += 2
            gained += gain
            helped |= bool(changed.any())
        done += 1
        total += gained
        advance(1)
        if not helped:
            break
        visits.record(np.concatenate(rounds), np.concatenate(seen))
    advance(passes - done)
    return Refined(rows, total, done)


def _rounded(objective: Objective, pool: Executor) -> Rounded | None:
    """The rounded rows, if swaps are searched on the CPU by pairs of vectors, and if the logits
    change little."""
    x, y = objective.sides
    if objective.lists is not None or len(objective.negatives) or x.device.type != "cpu":
        return None
    return round_rows(x, y, objective.temperature, pool)


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
