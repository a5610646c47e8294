"""Measures plans with formulas that do not depend on how they were planned."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from numpy.typing import ArrayLike

from batchplan.data import Candidates, Embeddings
from batchplan.data.candidates import data_of
from batchplan.errors import InputError
from batchplan.keywords import EvaluationKeywords
from batchplan.options import with_options
from batchplan.plans import Plan
from batchplan.plans.plan import require_plan
from batchplan.quality.coverage import coverage
from batchplan.quality.edges import MOST_EDGES, Edges, largest_similarities
from batchplan.quality.evaluation import Evaluation, GuardReport
from batchplan.quality.facts import RowFacts
from batchplan.quality.guard.limits import with_limit
from batchplan.quality.guarded import false_mined, guard_report
from batchplan.quality.known import AnswerReport, known_negatives
from batchplan.quality.losses.all_rows import global_statistics
from batchplan.quality.losses.distribution import distribution_figures, similarities_within
from batchplan.quality.losses.in_batches import batch_statistics
from batchplan.quality.losses.plans import losses
from batchplan.quality.measured import (
    HARDEST_KEPT,
    RECALLED,
    Estimate,
    GlobalStatistics,
    Measured,
    RandomPlans,
)
from batchplan.quality.metrics import METRICS
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.pairs import guarded_pairs, unguarded_pairs
from batchplan.quality.recall import hard_negative_recall
from batchplan.quality.references import drawn_sample, random_plans
from batchplan.runtime import Observer, Runtime

_FIXED_BYTES = 128 << 20  # tiles and chunks of all passes
_THREAD_BYTES = 32 << 20  # for the batches that a thread measures


@with_options(EvaluationOptions)
def evaluate(
    plan: Plan,
    x: Any,
    y: Any = None,
    *,
    negatives: Any = None,
    groups: ArrayLike | None = None,
    device: str = "auto",
    memory: int | str | None = None,
    seed: int = 0,
    observer: Observer | None = None,
    **options: Unpack[EvaluationKeywords],
) -> Evaluation:
    """Compare a plan with random batches, with all rows and with an oracle.

    Args:
        plan: a plan of these embeddings.
        x, y, negatives: `Embeddings`, or arrays, tensors or columns, as `batchplan.plan`
            takes them.
        groups: integers (N,), the group or class of each row, -1 for none; two rows of a group
            break the guard.
        device, memory, seed, observer: see `Runtime`; the seed draws the random plans.
        options: fields of `EvaluationOptions`.

    Raises:
        InputError: an option out of range, a plan or groups of other data, data without
            similarities, or arrays that `Embeddings.from_arrays` refuses.
        ResourceError: not enough memory, or no such device.
    """
    runtime = Runtime.of(device, memory, seed, observer)
    settings = EvaluationOptions(**options)
    require_plan(plan, x, "evaluate")
    data = data_of(x, y, negatives)
    if isinstance(data, Candidates):
        raise InputError("evaluate: got candidates, which have no vectors; use evaluate_candidates")
    facts = RowFacts.read(data, settings, runtime, groups)
    return evaluate_plans([plan], data, facts, settings, runtime)[0]


def evaluate_plans(
    plans: Sequence[Plan],
    embeddings: Embeddings,
    facts: RowFacts,
    options: EvaluationOptions,
    runtime: Runtime,
) -> list[Evaluation]:
    """Evaluate several plans of the same data.

    Each equals the result of `evaluate` with the same limit, bit for bit. One limit judges all
    plans, see `batchplan.quality.guard.limits`. Plans of the same batch size share the pass over
    all rows, and those with equal batches the random plans.

    Args:
        plans: of the N pairs.
        embeddings: N pairs.
        facts: groups and the reference, as `RowFacts.read` returns them.
        options: how to measure.
        runtime: device, memory budget, seed of the random plans, progress.

    Raises:
        InputError, ResourceError: as `evaluate`.
    """
    for plan in plans:
        plan.metadata.require_order(embeddings.shard_order)
        plan.require_match(embeddings.num_rows, embeddings.fingerprint)
        plan.metadata.require_ids(embeddings, options.label_table, facts.reference)
    if not plans:
        return []
    limited, limit_from = with_limit(plans, options)
    guarded = limited.limited or facts.groups is not None
    _require_memory(embeddings, plans, guarded, options.edges, runtime)
    pairs = unguarded_pairs(embeddings, options.similarity, options.temperature, runtime)
    sample = drawn_sample(pairs, options, runtime)
    pairs = guarded_pairs(pairs, embeddings, facts, limited, runtime)
    mined = false_mined(pairs)
    outside: dict[int, tuple[GlobalStatistics, GlobalStatistics]] = {}
    edges: dict[int, Edges] = {}
    random: dict[bytes, RandomPlans] = {}
    found = []
    for plan in plans:
        size, offsets = plan.batch_size, plan.batch_offsets
        forth, back, breaks = batch_statistics(pairs, plan.rows, offsets)
        if (cuts := offsets.tobytes()) not in random:
            random[cuts] = random_plans(pairs, offsets, options.random_trials, runtime)
        if size not in outside:
            with runtime.stage("evaluate", total=pairs.num_rows) as advance:
                outside[size] = global_statistics(pairs, size, runtime, advance, sample.rows)
        if options.edges and size not in edges:
            with runtime.stage("edges", total=pairs.num_rows) as advance:
                edges[size] = largest_similarities(pairs, size, sample.rows, advance)
        measured = Measured(
            plan=plan,
            temperature=options.temperature,
            largest_logit=pairs.bound / options.temperature,
            inside=(forth, back),
            sample=sample,
            outside=outside[size],
            random=random[cuts],
            edges=edges.get(size),
        )
        guard, errors = None, dict[str, float]()
        if pairs.guard is not None:
            guard, errors = guard_report(measured, breaks, mined, facts, limited, limit_from)
        known = None if facts.answers is None else known_negatives(plan, facts.answers, options)
        own = similarities_within(pairs, plan.rows, offsets)
        similarities = distribution_figures(own, random[cuts].similarities, pairs.bound)
        found.append(_evaluation(measured, guard, known, errors, similarities, embeddings, options))
    if facts.groups is not None and guard is not None and guard.limit_from == "rejected":
        alone = replace(options, guard=False, reference=None, reference_pair=None)  # groups remain
        return evaluate_plans(plans, embeddings, facts, alone, runtime)
    return found


def _evaluation(
    measured: Measured,
    guard: GuardReport | None,
    answers: AnswerReport | None,
    errors: dict[str, float],
    similarities: dict[str, Any],
    embeddings: Embeddings,
    options: EvaluationOptions,
) -> Evaluation:
    """Compute the figures of a plan.

    Args:
        errors: the standard errors of the guard's figures.
        similarities: as `distribution_figures` returns them.
    """
    plan, sampled = measured.plan, measured.sample.rows
    recalls = _recalls(measured)
    figures, of_losses = losses(measured)
    errors |= of_losses | {"hardness": errors.get("hardness", of_losses["gap_reduction"])}
    errors |= {f"hard_negative_recall.{m}": error for m, (_, error) in recalls.items()}
    computed: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        if metric.compute:
            found = metric.compute(measured)
            computed[name] = found.value if isinstance(found, Estimate) else found
            errors |= {name: found.error} if isinstance(found, Estimate) else {}
    return Evaluation(
        num_rows=embeddings.num_rows,
        num_batches=plan.num_batches,
        batch_size=plan.batch_size,
        partitions_rows=plan.metadata.partitions_rows,
        temperature=options.temperature,
        similarity=options.similarity,
        **figures,
        **similarities,
        hard_negative_recall={m: recall for m, (recall, _) in recalls.items()},
        guard=guard,
        answers=answers,
        coverage=coverage(plan.rows, embeddings.num_rows),
        fresh=plan.metadata.fingerprint == embeddings.fingerprint,
        computed=computed,
        sample=None if sampled is None else len(sampled),
        standard_errors={} if sampled is None else errors,
    )


def _recalls(measured: Measured) -> dict[str, tuple[float, float]]:
    """Return the recall by the number of hardest negatives, and its standard error."""
    members, hardest = measured.members, [direction.hardest for direction in measured.outside]
    return {
        str(m): hard_negative_recall(members, measured.sample, [own[:, :m] for own in hardest])
        for m in RECALLED
    }


def _require_memory(
    embeddings: Embeddings, plans: Sequence[Plan], guarded: bool, edges: bool, runtime: Runtime
) -> None:
    """Refuse early if the numbers kept for each row and each entry of the plans do not fit."""
    rows, entries = embeddings.num_rows, [len(plan.rows) for plan in plans]
    sizes = {plan.batch_size for plan in plans}
    need = rows * 8 * (len(sizes) * 2 * (7 + HARDEST_KEPT) + guarded * 16)
    need += edges * rows * 64 * sum(min(size, MOST_EDGES) for size in sizes)
    need += max(plan.batch_size for plan in plans) * 8 * embeddings.dim * len(embeddings.matrices)
    need += max(entries) * 8 * (2 * 6 + 8) + sum(4 * count + 8 * rows for count in entries)
    runtime.require_memory(
        need + _FIXED_BYTES + torch.get_num_threads() * _THREAD_BYTES,
        f"evaluate: {rows} rows",
        "evaluate a plan of fewer rows",
    )
