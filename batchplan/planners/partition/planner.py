"""Batches as parts of a graph: a balanced partition that raises the training loss itself.

The loss of a batch is a sum of log sum_j exp(s_ij / tau), so the batches with the highest loss are
a partition of the rows that maximises this sum. The edges of a graph of nearest neighbours weigh
what they add to the loss. A multilevel method cuts the graph into parts of exactly the batch size.
Then passes of swaps between batches raise the loss itself. Mega-batches are parts of the rows that
are planned separately, so that negatives are milder and change with the seed (Wieting and Gimpel,
"ParaNMT-50M: Pushing the Limits of Paraphrastic Sentence Embeddings with Millions of Machine
Translations", ACL 2018).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from batchplan.data import Candidates, Data
from batchplan.files.atomic import made_folder
from batchplan.guard.guard import make_apart
from batchplan.guard.separation import mended
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.finish import SHUFFLE
from batchplan.planners.partition.dealing import take_turns
from batchplan.planners.partition.mega_batch import MegaBatchOutcome, Planned, broken_pairs
from batchplan.planners.partition.options import MEGA_BATCH_ROWS, PartitionOptions
from batchplan.planners.partition.problem import Problem, make_problem
from batchplan.planners.partition.ray_cluster import plan_on_ray
from batchplan.planners.partition.resume import kept_files, read_planned, write_planned
from batchplan.planners.partition.together import plan_all
from batchplan.plans.plan import Plan
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_LAST = 13  # the generator stream of the last exchange of rows


def partition(embeddings: Data, options: PartitionOptions, runtime: Runtime) -> Draft:
    """Plan by multilevel partition and refinement.

    Args:
        embeddings: N pairs of d dimensions; for mega-batches of n rows N n d multiply-adds for
            the neighbours (half with one matrix), then O(N (k + B) d) a pass, in 16 N bytes and
            n (8 d + 280 k) bytes for k neighbours, for each mega-batch that is in memory. Or lists
            of candidates, without a search.
        options: graph, guard, refinement, mega-batches, sources and batches.
        runtime: device (of the neighbours), memory budget, seed, progress.

    Returns:
        The batches, refined. The metrics are the number of ``mega_batches``; the largest number of
        ``passes`` of swaps in any; the rise of the mean loss by all swaps, in nats
        (``refine_gain``); and, with a guard, the number of pairs that still break it
        (``broken_pairs``). If mega-batches were planned on several kinds of processor, whose sums
        differ in their last digits, ``arithmetics`` names these.

    Raises:
        InputError: options that do not fit the data, no such column, a zero row under cosine, or
            as `load_reference`.
        ResourceError: not enough memory, or no such device.
    """
    problem = make_problem(embeddings, options, runtime)
    mega_batches = problem.mega_batches
    ends = np.cumsum([mega_batch.batch_sizes.sum() for mega_batch in mega_batches])
    rows, outcomes = np.empty(ends[-1], np.int64), {}
    for number, planned in _planned(problem, runtime):
        end = ends[number]
        rows[end - len(planned.order) : end] = mega_batches[number].rows[planned.order]
        outcomes[number] = planned.outcome
    terms = embeddings.num_rows * (1 if isinstance(embeddings, Candidates) else 2)
    facts = _facts([outcomes[number] for number in range(len(ends))], terms)
    more: dict[str, Any] = {"facts": facts, "stored": problem.stored, "refined": True}
    more["last"] = partial(_separated, problem, runtime)
    if problem.one_order:
        return Draft(rows=rows, **more)
    shuffle = runtime.generator(SHUFFLE) if options.batch_order == "shuffled" else None
    rows, offsets = take_turns(rows, problem.batch_sizes(), shuffle)
    return Draft(rows=rows, offsets=offsets, **more)


def _separated(problem: Problem, runtime: Runtime, plan: Plan) -> Plan:
    """Separate groups and known answers that mega-batches, which are planned separately, or a
    padded tail left together. Count the pairs again that a tail adds or drops."""
    separate, rows = make_apart(problem.groups, problem.answers), plan.rows
    sizes, facts = np.diff(plan.batch_offsets), plan.metadata.metrics
    if separate.codes.size + separate.spans.size:
        offsets, generator = plan.batch_offsets.copy(), runtime.generator(_LAST)
        rows = mended(rows.copy(), offsets, separate, generator, problem.sources)
    batch_of = np.repeat(np.arange(len(plan)), sizes)
    changed = np.unique(batch_of[rows != plan.rows])
    if "broken_pairs" not in facts or (plan.metadata.partitions_rows and not len(changed)):
        return plan

    def broken(order: Int64Array, batches: Int64Array) -> int:
        entries = order[np.isin(batch_of, batches)]
        chosen = np.unique(entries)
        mega_batch = problem.mega_batch(chosen, sizes[batches], "keep")
        vectors, reference = problem.vectors(mega_batch)
        places = np.searchsorted(chosen, entries)
        return broken_pairs(vectors, mega_batch, places, problem.options, runtime, reference)

    if plan.metadata.partitions_rows:
        count = facts["broken_pairs"] + broken(rows, changed) - broken(plan.rows, changed)
    else:
        at_once = max(1, MEGA_BATCH_ROWS // int(sizes.max()))
        parts = np.split(np.arange(len(plan)), range(at_once, len(plan), at_once))
        count = sum(broken(rows, part) for part in parts)
    return Plan(rows, plan.batch_offsets, plan.metadata).with_metrics(broken_pairs=count)


def _planned(problem: Problem, runtime: Runtime) -> Iterator[tuple[int, Planned]]:
    """The number and the batches of each mega-batch; those that ``--resume`` kept come first."""
    plan_those = plan_all if problem.options.ray is None else plan_on_ray
    left = list(range(len(problem.mega_batches)))
    if problem.options.resume is None:
        yield from plan_those(problem, left, runtime)
        return
    paths, count = list(kept_files(problem, runtime)), len(left)
    with made_folder(paths[0].parent):
        for number, mega_batch in enumerate(problem.mega_batches):
            if (planned := read_planned(paths[number], mega_batch)) is not None:
                left.remove(number)
                yield number, planned
        runtime.note("resumed", f"{count - len(left)} of {count} mega-batches were done")
        for number, planned in plan_those(problem, left, runtime):
            write_planned(paths[number], planned)
            yield number, planned


def _facts(outcomes: list[MegaBatchOutcome], terms: int) -> dict[str, Any]:
    """The metrics of a plan whose loss is a mean of ``terms`` numbers."""
    broken = [outcome.broken for outcome in outcomes if outcome.broken is not None]
    kinds = sorted({outcome.arithmetic for outcome in outcomes})
    return {
        "mega_batches": len(outcomes),
        "passes": max(outcome.passes for outcome in outcomes),
        "refine_gain": sum(outcome.gain for outcome in outcomes) / terms,
        **({"broken_pairs": sum(broken)} if broken else {}),
        **({"arithmetics": kinds} if len(kinds) > 1 else {}),
    }
