"""Measures plans with formulas that do not depend on how they were planned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import torch
from numpy.typing import ArrayLike

from batchplan.data import Candidates, Embeddings
from batchplan.errors import InputError
from batchplan.keywords import EvaluationKeywords
from batchplan.options import with_options
from batchplan.plans import Plan
from batchplan.plans.plan import data_beside
from batchplan.quality.coverage import coverage
from batchplan.quality.evaluation import Evaluation, GuardReport
from batchplan.quality.false_negatives import check_codes, false_negatives
from batchplan.quality.guard.limits import with_limit
from batchplan.quality.guarded import false_mined, guard_errors, guard_report
from batchplan.quality.losses.distribution import Distribution
from batchplan.quality.losses.in_batches import Breaks, batch_statistics
from batchplan.quality.losses.plans import losses, standard_errors
from batchplan.quality.measured import HARDEST_KEPT, RECALLED, Measured
from batchplan.quality.metrics import METRICS
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.pairs import Pairs, guarded_pairs
from batchplan.quality.recall import hard_negative_recall, membership
from batchplan.quality.references import References
from batchplan.runtime import Observer, Runtime
from batchplan.typing import Int64Array

_FIXED_BYTES = 128 << 20  # tiles and chunks of all passes
_THREAD_BYTES = 32 << 20  # for the batches that a thread measures


@with_options(EvaluationOptions)
def evaluate(
    plan: Plan,
    x: Any,
    y: Any = None,
    *,
    negatives: Any = None,
    labels: ArrayLike | None = None,
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
        labels: integers (N,), the class of each row, -1 for none; a negative with the class of
            its anchor counts as false.
        groups: a second kind of label; two rows of a group also break the guard.
        device, memory, seed, observer: see `Runtime`; the seed draws the random plans.
        options: fields of `EvaluationOptions`.

    Raises:
        InputError: an option out of range, a plan or labels of other data, data without
            similarities, or arrays that `Embeddings.from_arrays` refuses.
        ResourceError: not enough memory, or no such device.
    """
    runtime = Runtime.of(device, memory, seed, observer)
    settings = EvaluationOptions(**options)
    data = data_beside(plan, x, y, negatives, "evaluate")
    if isinstance(data, Candidates):
        raise InputError("evaluate: got candidates, which have no vectors; use evaluate_candidates")
    return evaluate_plans([plan], data, settings, runtime, labels=labels, groups=groups)[0]


def evaluate_plans(
    plans: Sequence[Plan],
    embeddings: Embeddings,
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> list[Evaluation]:
    """Evaluate several plans of the same data.

    Each result equals that of `evaluate` with the same limit, bit for bit. One limit judges all
    plans, see `batchplan.quality.guard.limits`. The plans share the pass over all rows, and those
    with equal batches the random plans. They are measured one after the other, so memory is that
    of the largest plan.

    ``columns`` names the columns of the labels and groups, by ``labels`` and ``group``. Other
    arguments are those of `evaluate`.

    Raises:
        InputError, ResourceError: as `evaluate`.
    """
    for plan in plans:
        plan.require_match(embeddings.num_rows, embeddings.fingerprint)
    if not plans:
        return []
    options, limit_from = with_limit(plans, options)
    _require_memory(
        embeddings,
        [len(plan.rows) for plan in plans],
        options.limited or groups is not None,
        runtime,
    )
    codes = {
        kind: check_codes(values, embeddings.num_rows, what)
        for kind, what, values in (("labels", "labels", labels), ("group", "groups", groups))
        if values is not None
    }
    pairs, reference = guarded_pairs(embeddings, options, codes.get("group"), runtime)
    references = References(pairs, plans, options, runtime)
    report = partial(
        guard_report, mined=false_mined(pairs), options=options, limit_from=limit_from,
        reference=reference, grouped="group" in codes,
    )  # fmt: skip
    return [
        _evaluation(plan, embeddings, pairs, references, codes, columns or {}, report, options)
        for plan in plans
    ]


def _evaluation(
    plan: Plan,
    embeddings: Embeddings,
    pairs: Pairs,
    references: References,
    codes: dict[str, Int64Array],
    columns: Mapping[str, str | None],
    report: Callable[[Measured, Breaks], GuardReport],
    options: EvaluationOptions,
) -> Evaluation:
    """Measure one plan; ``report`` makes the report of the guard."""
    rows, offsets = plan.rows, plan.batch_offsets
    detail = Distribution(pairs.bound, pairs.x.device)
    forth, back, breaks = batch_statistics(pairs, rows, offsets, detail)
    random = references.random(offsets)
    measured = Measured(
        plan=plan,
        temperature=options.temperature,
        largest_logit=pairs.bound / options.temperature,
        inside=(forth, back),
        sample=references.sample,
        outside=references.all_rows(plan.batch_size),
        random=random.losses,
        random_allowed=random.allowed,
        codes=codes,
    )
    figures, recalls = losses(measured), _recalls(measured)
    guard, errors = None, standard_errors(measured, figures)
    errors |= {f"hard_negative_recall.{m}": error for m, (_, error) in recalls.items()}
    if pairs.guard is not None:
        guard = report(measured, breaks)
        errors |= guard_errors(measured, guard)
    sampled = measured.sample.rows
    return Evaluation(
        num_rows=embeddings.num_rows,
        num_batches=plan.num_batches,
        batch_size=plan.batch_size,
        partitions_rows=plan.metadata.partitions_rows,
        temperature=options.temperature,
        similarity=options.similarity,
        **figures,
        **detail.figures(random.detail),
        hard_negative_recall={m: recall for m, (recall, _) in recalls.items()},
        false_negatives={
            kind: replace(false_negatives(rows, offsets, of_rows), column=columns.get(kind))
            for kind, of_rows in codes.items()
        },
        guard=guard,
        coverage=coverage(rows, embeddings.num_rows),
        fresh=plan.metadata.fingerprint == embeddings.fingerprint,
        computed={
            name: metric.compute(measured) for name, metric in METRICS.items() if metric.compute
        },
        sample=None if sampled is None else len(sampled),
        standard_errors={} if sampled is None else errors,
    )


def _recalls(measured: Measured) -> dict[str, tuple[float, float]]:
    """Return the recall by the number of hardest negatives, and its standard error."""
    plan = measured.plan
    members = membership(plan.rows, plan.batch_offsets, measured.sample.num_rows)
    hardest = [direction.hardest for direction in measured.outside]
    return {
        str(m): hard_negative_recall(members, measured.sample, [own[:, :m] for own in hardest])
        for m in RECALLED
    }


def _require_memory(
    embeddings: Embeddings, entries: list[int], guarded: bool, runtime: Runtime
) -> None:
    """Refuse early if the numbers kept for each row and each entry of the plans do not fit."""
    rows = embeddings.num_rows
    need = rows * 8 * (2 * (6 + HARDEST_KEPT) + guarded * 16)
    need += max(entries) * 8 * (2 * 4 + 8) + sum(4 * count + 8 * rows for count in entries)
    runtime.require_memory(
        need + _FIXED_BYTES + torch.get_num_threads() * _THREAD_BYTES,
        f"evaluate: {rows} rows",
        "evaluate a plan of fewer rows",
    )
