"""Make a plan with each setting, and measure all of them on the same data."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from batchplan.comparison.children import PLAN, Failure, Job, run_child
from batchplan.comparison.ranking import Comparison, Ranked
from batchplan.comparison.results import Made, Results, check_results, origin
from batchplan.comparison.settings import Setting
from batchplan.data import Embeddings
from batchplan.plans import Plan
from batchplan.quality import EvaluationOptions, evaluate_plans
from batchplan.runtime import Runtime, format_bytes


def compare(
    settings: Sequence[Setting],
    embeddings: Embeddings,
    source: Mapping[str, Any],
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
        settings: from `make_setting` or `read_settings`, no two of a name.
        embeddings: N pairs.
        source: the arguments of `load_embeddings` that read the same data, as ``{"paths": ...}``:
            each planner reads them in a process of its own.
        options: what to measure with.
        runtime: device, memory and seed of the planners and of the measuring; progress.
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
    found: dict[str, Made | Failure | None] = {
        one.name: results.find(one, origins[one.name]) if results else None for one in settings
    }
    with runtime.stage("plans", total=len(settings)) as advance:
        for one in settings:
            made = found[one.name]
            if made is None:
                with runtime.stage(one.name):
                    found[one.name] = made = _make(one, source, runtime, results, origins[one.name])
            runtime.note(one.name, _said(made))
            advance(1)
    plans = [(one, it) for one in settings if isinstance(it := found[one.name], Made)]
    failures = [(one, it) for one in settings if isinstance(it := found[one.name], Failure)]
    evaluations = evaluate_plans(
        [it.plan for _, it in plans], embeddings, options, runtime, labels=labels, groups=groups
    )
    ranked = [
        Ranked(one, evaluation, it.cost, it.kept)
        for (one, it), evaluation in zip(plans, evaluations, strict=True)
    ]
    ranked.sort(key=lambda one: (-one.score, one.setting.name))
    return Comparison(ranked, failures)


def _make(
    setting: Setting,
    source: Mapping[str, Any],
    runtime: Runtime,
    results: Results | None,
    made_with: dict[str, Any],
) -> Made | Failure:
    job = Job(setting, source, runtime)
    with tempfile.TemporaryDirectory(prefix="batchplan-") as scratch:
        folder = Path(scratch)
        cost = run_child(job, folder)
        if isinstance(cost, Failure):
            return cost
        if results is not None:
            results.keep(setting, made_with, folder / PLAN, cost)
        return Made(Plan.load(folder / PLAN), cost, kept=False)


def _said(found: Made | Failure) -> str:
    if isinstance(found, Failure):
        return found.error
    memory = format_bytes(found.cost.peak_memory_bytes)
    return f"{found.cost.seconds:.2f} s, {memory}{', kept' * found.kept}"
