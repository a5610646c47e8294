"""Make a plan with each setting, and measure all of them on the same data."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchplan.comparison.children import Failure, run_child
from batchplan.comparison.ranking import Comparison, Ranked, rank
from batchplan.comparison.results import Made, Results, check_results, origin
from batchplan.comparison.settings import Setting
from batchplan.plans import Plan
from batchplan.quality import EvaluationOptions, evaluate_plans
from batchplan.runtime import Runtime, format_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from batchplan.data import Embeddings


def compare(
    settings: Sequence[Setting],
    embeddings: Embeddings,
    arguments: Sequence[str],
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    folder: Path | None = None,
    inputs: Sequence[str] = (),
) -> Comparison:
    """Rank the plans that these settings make.

    Args:
        settings: from `read_settings`, no two of a name.
        embeddings: N pairs.
        arguments: what makes a planner's command read the same data and use the same seed, memory
            and device.
        options: what to measure with.
        runtime: device and memory of the measuring, seed, progress.
        labels, groups: as in `batchplan.evaluate`.
        folder: a folder of results. What it has is not made again, what it lacks is added.
        inputs: files and folders that must not be written to.

    Raises:
        InputError: files that are no results in the folder, missing files or columns, or what
            `batchplan.evaluate` refuses. A planner that refuses is a failure in the comparison.
        ResourceError: not enough memory to measure, or no such device.
        OutputError: a result could not be kept.
    """
    if folder is not None:
        check_results(folder, settings, inputs)
    results = None if folder is None else Results(folder)
    origins = {one.name: origin(one, embeddings, runtime.seed) for one in settings}
    found: dict[str, Made | Failure] = {}
    if results is not None:
        kept = {one.name: results.find(one, origins[one.name]) for one in settings}
        found |= {name: made for name, made in kept.items() if made is not None}
    with runtime.stage("plans", total=len(settings)) as advance:
        for one in settings:
            if one.name not in found:
                with runtime.stage(one.name):
                    found[one.name] = _make(one, arguments, results, origins[one.name])
            runtime.note(one.name, _said(found[one.name]))
            advance(1)
    made = [(one, it) for one in settings if isinstance(it := found[one.name], Made)]
    failures = [(one, it) for one in settings if isinstance(it := found[one.name], Failure)]
    evaluations = evaluate_plans(
        [it.plan for _, it in made], embeddings, options, runtime, labels=labels, groups=groups
    )
    return Comparison(
        rank(
            [
                Ranked(one, evaluation, it.cost, it.kept)
                for (one, it), evaluation in zip(made, evaluations, strict=True)
            ]
        ),
        failures,
    )


def _make(
    setting: Setting,
    arguments: Sequence[str],
    results: Results | None,
    made_with: dict[str, object],
) -> Made | Failure:
    with tempfile.TemporaryDirectory(prefix="batchplan-") as scratch:
        output = Path(scratch) / "plan.npz"
        cost = run_child(setting, arguments, output)
        if isinstance(cost, Failure):
            return cost
        if results is not None:
            results.keep(setting, made_with, output, cost)
        return Made(Plan.load(output), cost, kept=False)


def _said(found: Made | Failure) -> str:
    if isinstance(found, Failure):
        return found.error
    memory = format_bytes(found.cost.peak_memory_bytes)
    return f"{found.cost.seconds:.2f} s, {memory}{', kept' * found.kept}"
