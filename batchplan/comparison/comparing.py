"""Makes a plan with each setting, measures all plans on the same data, and ranks them."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from batchplan.comparison.children import PLAN, Failure, Job, run_child
from batchplan.comparison.ranking import Comparison, Ranked
from batchplan.comparison.results import Result, Results, check_results, origin
from batchplan.comparison.settings import Setting
from batchplan.data import Embeddings
from batchplan.plans import Plan
from batchplan.quality import EvaluationOptions, evaluate_plans
from batchplan.quality.verdict import ranking
from batchplan.runtime import PLANNED, Runtime, format_bytes


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
    """Make a plan with each setting, and rank the plans.

    Args:
        settings: from `make_setting` or `read_settings`, with different names.
        embeddings: N pairs.
        source: the arguments of `load_embeddings` for the same data, such as ``{"paths": ...}``.
            Each planner reads the data in its own process.
        options: how to measure.
        runtime: device, memory and seed of planners and measures; progress.
        labels, groups: as in `batchplan.evaluate`.
        folder: a folder of results. Its plans are used again, and other plans are added.
        inputs: files and folders that must not be overwritten.

    Raises:
        InputError: another file has the name of a result, missing files or columns, or as
            `batchplan.evaluate`. Errors of a planner become failures in the comparison.
        ResourceError: not enough memory to measure, or no such device.
        OutputError: a result could not be written.
    """
    if folder is not None:
        check_results(folder, settings, inputs)
    results = None if folder is None else Results(folder)
    # Look up all results before any planner runs, so that a wrong file is reported at once.
    found: list[tuple[Setting, dict[str, Any], Result | None]] = []
    for setting in settings:
        made_with = origin(setting, embeddings, runtime.seed)
        kept = None if results is None else results.find(setting, made_with)
        found.append((setting, made_with, kept))
    plans: list[tuple[Setting, Result]] = []
    failures: list[tuple[Setting, Failure]] = []
    with runtime.stage("plans", total=len(settings)) as advance:
        for setting, made_with, kept in found:
            outcome: Result | Failure | None = kept
            if outcome is None:
                with runtime.stage(setting.name):
                    outcome = _make(setting, source, runtime, results, made_with)
            runtime.note(PLANNED, f"{setting.name}, {_note(outcome)}")
            if isinstance(outcome, Failure):
                failures.append((setting, outcome))
            else:
                plans.append((setting, outcome))
            advance(1)
    evaluations = evaluate_plans(
        [result.plan for _, result in plans],
        embeddings, options, runtime, labels=labels, groups=groups,
    )  # fmt: skip
    ranked = [
        Ranked(setting, evaluation, result.cost, result.kept)
        for (setting, result), evaluation in zip(plans, evaluations, strict=True)
    ]
    ranked.sort(key=lambda plan: plan.setting.name)
    order = ranking([plan.evaluation for plan in ranked])
    return Comparison([ranked[at] for at in order], failures)


def _make(
    setting: Setting,
    source: Mapping[str, Any],
    runtime: Runtime,
    results: Results | None,
    made_with: dict[str, Any],
) -> Result | Failure:
    """Run a planner, and add its plan to the results."""
    with tempfile.TemporaryDirectory(prefix="batchplan-") as scratch:
        folder = Path(scratch)
        cost = run_child(Job(setting, source, runtime), folder)
        if isinstance(cost, Failure):
            return cost
        if results is not None:
            results.keep(setting, made_with, folder / PLAN, cost)
        return Result(Plan.load(folder / PLAN), cost, kept=False)


def _note(outcome: Result | Failure) -> str:
    if isinstance(outcome, Failure):
        return outcome.error
    memory = format_bytes(outcome.cost.peak_memory_bytes)
    return f"{outcome.cost.seconds:.2f} s, {memory}{', kept' * outcome.kept}"
