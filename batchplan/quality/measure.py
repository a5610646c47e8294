"""Measure a plan, from formulas that know nothing of how it was made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchplan.errors import ResourceError
from batchplan.graph import build_graph
from batchplan.options import check_names
from batchplan.quality.evaluation import Direction, Evaluation
from batchplan.quality.false_negatives import check_codes, false_negatives
from batchplan.quality.globalpass import HARDEST_KEPT, GlobalStatistics, global_statistics
from batchplan.quality.guard import guard_report
from batchplan.quality.histogram import Histogram
from batchplan.quality.inbatch import BatchStatistics, Detail, batch_statistics
from batchplan.quality.membership import (
    EdgeStatistics,
    Membership,
    edge_statistics,
    hard_negative_recall,
)
from batchplan.quality.occurrence import coverage
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.percentiles import Percentiles
from batchplan.quality.rows import Side, sides
from batchplan.quality.trials import random_losses
from batchplan.runtime import Observer, Runtime, format_bytes

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

PERCENTS = (1, 5, 25, 50, 75, 95, 99)
RECALLED = (1, HARDEST_KEPT)

_NOISE_64 = 1e-10  # relative: float64 losses closer than this are equal
_NOISE_32 = 1e-6  # relative to the largest logit: losses of float32 similarities, likewise
_FIXED_BYTES = 160 << 20  # the tiles and chunks of all passes, and what is kept for percentiles


def evaluate(
    plan: Plan,
    embeddings: Embeddings,
    *,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    device: str = "auto",
    memory: int | None = None,
    seed: int = 0,
    observer: Observer | None = None,
    **options: Any,
) -> Evaluation:
    """Measure a plan against random batches, against all rows and against an oracle.

    Args:
        plan: of the same data.
        embeddings: N pairs of rows.
        labels: integers (N,), a code for the class of each row, -1 for none; negatives of the
            class of their anchor are counted as false ones.
        groups: likewise, of a second kind of label; rows of one group also break the guard.
        device, memory, seed, observer: see `Runtime`; the seed makes the random plans.
        options: fields of `EvaluationOptions`.

    Raises:
        InputError: an option out of range, a plan or labels of other data, or data without
            similarities.
        ResourceError: not enough memory, or no such device.
    """
    check_names(options, EvaluationOptions, "evaluate")
    runtime = Runtime(device, memory, seed, observer)
    settings = EvaluationOptions(**options)
    return evaluate_plan(plan, embeddings, settings, runtime, labels=labels, groups=groups)


def evaluate_plan(
    plan: Plan,
    embeddings: Embeddings,
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Evaluation:
    """`evaluate` with its settings already made; raises the same."""
    plan.require_match(embeddings.num_rows, embeddings.fingerprint)
    _require_memory(plan, embeddings, options.limited or groups is not None, runtime)
    given = _codes(embeddings.num_rows, labels, groups)
    membership = Membership(plan.rows, plan.batch_offsets, embeddings.num_rows)
    edges = _edges(embeddings, options, membership, runtime)
    x, y, bound = sides(embeddings, options.similarity, options.temperature, runtime)

    offsets, tau = plan.batch_offsets, options.temperature
    sizes = np.diff(offsets)
    percentiles = Percentiles(int((sizes * (sizes - 1)).sum()), bound, x.device)
    detail, by_chance = Detail(percentiles, Histogram(bound, x.device)), Histogram(bound, x.device)
    inside = batch_statistics(x, y, plan.rows, offsets, tau, detail)
    random = random_losses(x, y, offsets, tau, options.random_trials, runtime, by_chance)
    outside = _all_rows(x, y, plan.batch_size, tau, runtime)
    guard = guard_report(plan, embeddings, x, y, bound, options, given.get("group"), runtime)

    directions = [
        _direction(*measured, sizes) for measured in zip(inside, outside, random, strict=True)
    ]
    both: dict[str, Any] = {name: _mean(getattr(d, name) for d in directions) for name in _NAMES}
    return Evaluation(
        num_rows=embeddings.num_rows,
        num_batches=plan.num_batches,
        batch_size=plan.batch_size,
        partitions_rows=plan.metadata.partitions_rows,
        temperature=tau,
        similarity=options.similarity,
        **both,
        **_against_random(both, random.mean(axis=0), bound / tau),
        **_similarities(detail, by_chance),
        quantile=options.quantile if options.neighbors is None else None,
        edges=edges.edges,
        bandwidth=edges.bandwidth,
        edge_recall=edges.recall,
        hard_negative_recall=_recalls(membership, plan.rows, outside),
        false_negatives={
            kind: false_negatives(plan.rows, offsets, codes) for kind, codes in given.items()
        },
        guard=guard,
        coverage=coverage(plan.rows, embeddings.num_rows),
        directions=dict(zip(("x_to_y", "y_to_x"), directions, strict=True)),
    )


def _codes(
    num_rows: int, labels: ArrayLike | None, groups: ArrayLike | None
) -> dict[str, Int64Array]:
    """The labels that were given, by kind."""
    found = {
        "labels": check_codes(labels, num_rows, "labels"),
        "group": check_codes(groups, num_rows, "groups"),
    }
    return {kind: codes for kind, codes in found.items() if codes is not None}


def _recalls(
    membership: Membership, rows: Int64Array, outside: Iterable[GlobalStatistics]
) -> dict[str, float]:
    """By how many of the hardest."""
    return {
        str(m): _mean(hard_negative_recall(membership, rows, one.hardest[:, :m]) for one in outside)
        for m in RECALLED
    }


def _similarities(detail: Detail, random: Histogram) -> dict[str, Any]:
    """The fields made of the similarities in batches; without negatives both mappings are empty."""
    plan, percentiles = detail.histogram, detail.percentiles.at(PERCENTS) or ()
    histogram = {"edges": plan.edges, "plan": plan.shares(), "random": random.shares()}
    return {
        "qap_objective": 2 * detail.total,
        "bottleneck": detail.smallest,
        "similarity_percentiles": dict(zip(map(str, PERCENTS), percentiles, strict=False)),
        "similarity_histogram": histogram if percentiles else {},
    }


def _edges(
    embeddings: Embeddings, options: EvaluationOptions, membership: Membership, runtime: Runtime
) -> EdgeStatistics:
    # In a function of its own so that the graph is gone before the next pass wants memory.
    budget, similarity = options.edge_budget(), options.similarity
    graph = build_graph(embeddings, budget, runtime, similarity=similarity, weights=False)
    return edge_statistics(graph.indptr.cpu().numpy(), graph.indices.cpu().numpy(), membership)


def _all_rows(
    x: Side, y: Side, batch_size: int, temperature: float, runtime: Runtime
) -> tuple[GlobalStatistics, GlobalStatistics]:
    """x to y, and y to x (the same object where y is x)."""
    pairs = ((x, y),) if x is y else ((x, y), (y, x))
    with runtime.stage("evaluate", total=len(pairs) * x.num_rows) as advance:
        found = [
            global_statistics(
                *pair,
                temperature=temperature,
                batch_size=batch_size,
                memory=runtime.memory_left(),
                advance=advance,
            )
            for pair in pairs
        ]
    return found[0], found[-1]


def _direction(
    inside: BatchStatistics, outside: GlobalStatistics, random: Float64Array, sizes: Int64Array
) -> Direction:
    losses = inside.losses()
    loss_train = float(losses.mean())
    loss_global = float((outside.log_sum - outside.positive).mean())
    # Lemma 3.3, and lemmas 3.4 and 3.5. Each entry has the size of its own batch, so that the
    # bounds hold for any plan; for a partition they are those of theorems 3.6 and 3.7.
    most = float((outside.peak - outside.positive).mean()) + log(len(outside.peak))
    log_sizes = float((sizes * np.log(sizes)).sum() / sizes.sum())
    least_36 = float((inside.floor - inside.positive).mean()) + log_sizes
    least_37 = float((inside.peak - inside.positive).mean())
    return Direction(
        loss_train=loss_train,
        loss_global=loss_global,
        loss_random=float(random.mean()),
        loss_oracle=float((outside.oracle - outside.positive).mean()),
        gap=loss_global - loss_train,
        bound_36=most - least_36,
        bound_37=most - least_37,
        positive_probability=float(np.exp(-losses).mean()),
    )


_NAMES = tuple(field.name for field in fields(Direction))


def _against_random(
    both: dict[str, float], trials: Float64Array, largest_logit: float
) -> dict[str, Any]:
    """The fields that set the plan against ``trials``, the losses of random plans."""
    train, random, oracle = both["loss_train"], both["loss_random"], both["loss_oracle"]
    # Where random plans differ only in the order of their sums, a quotient would be of noise.
    tiny = _NOISE_64 * max(1.0, largest_logit)
    std = float(trials.std(ddof=1))
    std = std if std > tiny else 0.0
    equal = abs(train - random) <= tiny
    z = (train - random) / std if std else 0.0 if equal else None
    noise = _NOISE_32 * largest_logit
    gap_random = both["loss_global"] - random
    reach = oracle - random
    return {
        "loss_random_std": std,
        "random_z": z,
        "gap_random": gap_random,
        "gap_reduction": 1 - both["gap"] / gap_random if abs(gap_random) > noise else 0.0,
        "oracle_share": (train - random) / reach if abs(reach) > noise else 1.0,
    }


def _require_memory(plan: Plan, embeddings: Embeddings, guarded: bool, runtime: Runtime) -> None:
    """Refuse early what cannot fit: some numbers for each row and for each entry of the plan."""
    a_row = 8 * 2 * (6 + HARDEST_KEPT) + guarded * 8 * 16
    an_entry = 8 * (2 * 4 + 8)
    need = a_row * embeddings.num_rows + an_entry * len(plan.rows) + _FIXED_BYTES
    left = runtime.memory_left()
    if need > left:
        rows = max(left - _FIXED_BYTES, 0) // (a_row + an_entry)
        raise ResourceError(
            f"evaluate: {embeddings.num_rows} rows need {format_bytes(need)} of memory and "
            f"{format_bytes(max(left, 0))} is left, enough for about {rows} rows; raise --memory, "
            "or evaluate a plan of fewer rows"
        )


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
