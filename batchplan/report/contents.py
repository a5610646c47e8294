"""What a report shows: everything that its pictures and tables are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchplan.errors import InputError
from batchplan.quality import Evaluation, EvaluationOptions, evaluate_plans
from batchplan.quality.rows import Side, sides
from batchplan.quality.trials import random_orders
from batchplan.report.palette import PLANS
from batchplan.report.profile import Profile, profile
from batchplan.report.runs import run_similarities
from batchplan.runtime import Runtime
from batchplan.text import one_line

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_OVERVIEW = 96  # cells of a side, at most
_ZOOM = 256  # likewise
_ZOOM_BATCHES = 8, 2  # at most, and at least if there are that many


@dataclass(frozen=True, eq=False)
class Similarities:
    """Two pictures of the similarities of an order of rows.

    Attributes:
        overview: (cells, cells), the mean similarity of the rows of some batches and those of
            others, of all batches.
        batches_a_cell: batches in each cell; the last may have fewer.
        zoom: (cells, cells), the similarities of the rows of some batches in the middle.
        rows_a_cell: rows in each cell; the last of a batch may have fewer.
        zoom_edges: int (batches + 1,), the cell that each batch of the zoom starts in.
        zoom_first: the first batch of the zoom, from 0.
    """

    overview: Float64Array
    batches_a_cell: int
    zoom: Float64Array
    rows_a_cell: int
    zoom_edges: Int64Array
    zoom_first: int


@dataclass(frozen=True, eq=False)
class PlanContents:
    """What a report shows of a plan."""

    name: str
    plan: Plan
    evaluation: Evaluation
    profile: Profile
    similarities: Similarities
    seconds: Mapping[str, float] | None

    @property
    def planner(self) -> str:
        """Its planner, in words."""
        return self.plan.metadata.planner or "planner unknown"


@dataclass(frozen=True, eq=False)
class Contents:
    """What a report shows.

    Attributes:
        plans: in the order given.
        random: the first random plan that the evaluations compare with, batch by batch.
        original, shuffled: the similarities in the order of the data, and in that of ``random``.
        num_rows, dim: N and d.
        paired: whether there are two matrices.
        fingerprint: of the data.
        options, seed: of the evaluations.
    """

    plans: list[PlanContents]
    random: Profile
    original: Similarities
    shuffled: Similarities
    num_rows: int
    dim: int
    paired: bool
    fingerprint: str
    options: EvaluationOptions
    seed: int

    @property
    def batch_size(self) -> int:
        return self.plans[0].plan.batch_size


def gather(
    plans: Mapping[str, Plan],
    embeddings: Embeddings,
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    columns: Mapping[str, str | None] | None = None,
    seconds: Mapping[str, Mapping[str, float]] | None = None,
) -> Contents:
    """Measure what a report shows; the arguments are those of `write_report`, which see."""
    _check_plans(plans, embeddings)
    given = list(plans.values())
    evaluations = evaluate_plans(given, embeddings, options, runtime, labels=labels, groups=groups)
    x, y, _ = sides(embeddings, options.similarity, options.temperature, runtime)
    first = given[0]
    (by_chance,) = random_orders(x.num_rows, first.batch_offsets, 1, runtime)
    whole = np.append(np.arange(0, x.num_rows, first.batch_size), x.num_rows)
    tau = options.temperature
    shown = []
    with runtime.stage("report", total=len(plans) + 1) as advance:
        random = profile(x, y, by_chance, first.batch_offsets, tau)
        original = similarities(x, y, np.arange(x.num_rows), whole)
        shuffled = similarities(x, y, by_chance, first.batch_offsets)
        advance(1)
        for (name, plan), evaluation in zip(plans.items(), evaluations, strict=True):
            shown.append(
                PlanContents(
                    one_line(name),
                    plan,
                    evaluation.with_columns(**(columns or {})),
                    profile(x, y, plan.rows, plan.batch_offsets, tau),
                    similarities(x, y, plan.rows, plan.batch_offsets),
                    (seconds or {}).get(name),
                )
            )
            advance(1)
    embeddings.require_unchanged()
    return Contents(
        shown,
        random,
        original,
        shuffled,
        embeddings.num_rows,
        embeddings.dim,
        embeddings.paired,
        embeddings.fingerprint,
        options,
        runtime.seed,
    )


def similarities(x: Side, y: Side, rows: Int64Array, offsets: Int64Array) -> Similarities:
    """The pictures of an order of rows: int64 (entries,), cut at ``offsets``."""
    batches = len(offsets) - 1
    a_cell = -(-batches // _OVERVIEW)
    overview = np.append(offsets[:-1:a_cell], offsets[-1])
    most, least = _ZOOM_BATCHES
    largest = int(np.diff(offsets).max())
    count = min(batches, max(least, min(most, _ZOOM // largest)))
    first = (batches - count) // 2
    zoomed = offsets[first : first + count + 1]
    step = -(-int(zoomed[-1] - zoomed[0]) // _ZOOM)
    cells = [np.arange(*ends, step) for ends in pairwise(zoomed)]
    starts = np.append(np.concatenate(cells), zoomed[-1])
    return Similarities(
        overview=run_similarities(x, y, rows, overview),
        batches_a_cell=a_cell,
        zoom=run_similarities(x, y, rows[zoomed[0] : zoomed[-1]], starts - zoomed[0]),
        rows_a_cell=step,
        zoom_edges=np.cumsum([0, *map(len, cells)]),
        zoom_first=first,
    )


def _check_plans(plans: Mapping[str, Plan], embeddings: Embeddings) -> None:
    if not 1 <= len(plans) <= len(PLANS):
        raise InputError(
            f"report: got {len(plans)} plans, expected 1 to {len(PLANS)}, as many as a picture can "
            "tell apart; make several reports"
        )
    for plan in plans.values():
        plan.require_match(embeddings.num_rows, embeddings.fingerprint)
    sizes = {name: plan.batch_size for name, plan in plans.items()}
    if len({*sizes.values()}) > 1:
        found = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(
            f"report: plans of different batch sizes ({found}): losses in batches of different "
            "sizes cannot be compared; make a report of each size"
        )
