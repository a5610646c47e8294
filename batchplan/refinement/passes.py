"""Passes over pairs of batches that exchange rows to raise the loss."""

from dataclasses import dataclass, replace

import numpy as np

from batchplan.graph.affinity import Affinity
from batchplan.refinement.kernel import Search
from batchplan.refinement.objective import Objective
from batchplan.refinement.rounds import improve_round
from batchplan.refinement.schedule import Visits, in_rounds, promising_pairs
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import single_threads
from batchplan.typing import Int64Array

_PARTNERS = 12  # batches that each batch is paired with in a pass, at most
_BLOCK_BYTES = 1 << 30  # device memory for the blocks of all threads


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
    rows = rows.copy()
    objective = _placed(objective, runtime)
    count = len(offsets) - 1
    masked = objective.guard.active or len(np.unique(rows)) < len(rows)
    visits = Visits(np.full(count, -1, np.int64))
    clock, done, total = 0, 0, 0.0
    with single_threads() as pool, runtime.stage("refine", passes) as advance:
        while done < passes and count > 1:
            candidates = promising_pairs(affinity, rows, offsets, visits, _PARTNERS)
            rounds = in_rounds(candidates, count, 2 * _PARTNERS)
            gained, helped, seen = 0.0, False, []
            for pairs in rounds:
                gain, changed = improve_round(
                    rows, offsets, pairs, objective, masked, Search(), pool
                )
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
