"""Batches as parts of a graph: a balanced partition that raises the training loss itself.

The loss that a batch shows is a sum of log sum_j exp(s_ij / tau), so the batches that show the most
are a partition of the rows that maximises it. A graph of nearest neighbours, whose edges weigh what
they do to the loss, is partitioned into parts of exactly the batch size by a multilevel method.
Then passes of swaps between batches raise the loss itself. Mega-batches, parts of the rows that are
planned alone, so that negatives are milder and change with the seed, are those of Wieting and
Gimpel ("ParaNMT-50M: Pushing the Limits of Paraphrastic Sentence Embeddings with Millions of
Machine Translations", ACL 2018).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from batchplan.data import Candidates, Data, Embeddings
from batchplan.guard.guard import Guard, make_guard
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.finish import SHUFFLE
from batchplan.planners.partition.batches import in_random_order, take_turns
from batchplan.planners.partition.mega_batch import Outcome, Planned
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.partition.problem import Problem, make_problem
from batchplan.planners.partition.ray_cluster import plan_on_ray
from batchplan.planners.partition.resume import Kept
from batchplan.planners.partition.together import plan_all
from batchplan.refinement.objective import require_rows_fit
from batchplan.runtime import Runtime

_BLOCKS = 9  # the generator stream of the blocks of sources that share a batch


def partition(embeddings: Data, options: PartitionOptions, runtime: Runtime) -> Draft:
    """Plan by multilevel partition and refinement.

    Args:
        embeddings: N pairs of d dimensions; for mega-batches of n rows N n d multiply-adds for
            the neighbours (half with one matrix), then O(N (k + B) d) a pass, in 16 N bytes and
            n (8 d + 280 k) bytes for k neighbours, for each mega-batch that is worked at. Or lists
            of candidates, without a search.
        options: graph, guard, refinement, dial, sources and batches. Where batches are made of
            blocks of sources and a guard is in force, 8 N d bytes more, and N B d multiply-adds.
        runtime: device (of the neighbours), memory budget, seed, progress.

    Returns:
        The batches, refined. The metrics are the number of ``mega_batches``; the most ``passes`` of
        swaps made in any, and by how much all raised the mean loss, in nats (``refine_gain``); and,
        where a guard is in force, how many pairs break it still (``broken_pairs``). Where
        mega-batches were planned on several kinds of processor, whose sums differ in their last
        digits, ``arithmetics`` names them.

    Raises:
        InputError: options that do not fit the data, no such column, a plan to start from of
            another number of rows, a zero row under cosine, or as `load_reference`.
        ResourceError: not enough memory, or no such device.
    """
    problem = make_problem(embeddings, options, runtime)
    guard = _guard_of_all(problem, embeddings, options, runtime)
    ends = np.cumsum([dealt.batch_sizes.sum() for dealt in problem.dealt])
    rows, outcomes = np.empty(ends[-1], np.int64), {}
    for number, planned in _planned(problem, embeddings, options, runtime):
        end = ends[number]
        rows[end - len(planned.order) : end] = problem.dealt[number].rows[planned.order]
        outcomes[number] = planned.outcome
    terms = embeddings.num_rows * (1 if isinstance(embeddings, Candidates) else 2)
    facts = _facts([outcomes[number] for number in range(len(ends))], terms)
    more: dict[str, Any] = {"facts": facts, "stored": problem.stored}
    if problem.in_blocks is not None:
        facts.pop("broken_pairs", None)  # counted again in whole batches
        rows = in_random_order(rows, problem.batch_sizes(), runtime.generator(_BLOCKS))
        return Draft(rows=rows, refined=True, guard=guard, kinds=problem.in_blocks, **more)
    if problem.alone:
        return Draft(rows=rows, refined=True, **more)
    shuffle = runtime.generator(SHUFFLE) if options.batch_order == "shuffled" else None
    rows, offsets = take_turns(rows, problem.batch_sizes(), shuffle)
    return Draft(rows=rows, offsets=offsets, refined=True, **more)


def _planned(
    problem: Problem, embeddings: Data, options: PartitionOptions, runtime: Runtime
) -> Iterator[tuple[int, Planned]]:
    """The number of each mega-batch and its batches, first of those that were kept."""
    numbers = range(len(problem.dealt))
    plan_those = plan_all if options.ray is None else plan_on_ray
    if options.resume is None:
        yield from plan_those(problem, numbers, embeddings, options, runtime)
        return
    kept = Kept.of(options.resume, embeddings, options, problem.stored, runtime)
    left = []
    for number in numbers:
        if (planned := kept.read(number, problem.mega_batch(number))) is None:
            left.append(number)
        else:
            yield number, planned
    runtime.note("resumed", f"{len(numbers) - len(left)} of {len(numbers)} mega-batches were done")
    for number, planned in plan_those(problem, left, embeddings, options, runtime):
        kept.write(number, problem.mega_batch(number), planned)
        yield number, planned


def _guard_of_all(
    problem: Problem, embeddings: Data, options: PartitionOptions, runtime: Runtime
) -> Guard | None:
    """The guard of all rows, if something is to be done with finished batches.

    Raises:
        ResourceError: the rows will not fit the memory then.
    """
    if problem.in_blocks is None:
        return None
    groups = [] if problem.groups is None else [problem.groups]
    guard = make_guard(
        embeddings, runtime, **options.limits(), groups=groups, usual=problem.usual,
        reference=problem.reference,
    )  # fmt: skip
    if guard.active and isinstance(embeddings, Embeddings):
        require_rows_fit(embeddings, guard, runtime)
    return guard


def _facts(outcomes: list[Outcome], terms: int) -> dict[str, Any]:
    """The metrics of outcomes, whose losses sum over as many terms."""
    broken = [outcome.broken for outcome in outcomes if outcome.broken is not None]
    kinds = sorted({outcome.arithmetic for outcome in outcomes})
    return {
        "mega_batches": len(outcomes),
        "passes": max(outcome.passes for outcome in outcomes),
        "refine_gain": sum(outcome.gain for outcome in outcomes) / terms,
        **({"broken_pairs": sum(broken)} if broken else {}),
        **({"arithmetics": kinds} if len(kinds) > 1 else {}),
    }
