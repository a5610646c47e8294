"""Makes a plan with each setting, measures all plans on the same data, and ranks them."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import ArrayLike

from batchplan.comparison.children import PLAN, Failure, Job, run_child
from batchplan.comparison.ranking import Comparison, Ranked
from batchplan.comparison.results import Result, check_results, find_result, keep_result, origin
from batchplan.comparison.settings import USUAL, Setting, make_setting
from batchplan.data import Embeddings, load_embeddings
from batchplan.files.inputs import PathLike, listed
from batchplan.keywords import EvaluationKeywords
from batchplan.options import with_options
from batchplan.plans import Plan
from batchplan.quality import EvaluationOptions, evaluate_plans
from batchplan.quality.verdict import ranking
from batchplan.runtime import PLANNED, Observer, Runtime, format_bytes


@with_options(EvaluationOptions)
def compare(
    paths: PathLike | Sequence[PathLike],
    pair: PathLike | Sequence[PathLike] | None = None,
    *,
    single: bool = False,
    planners: Sequence[str] | Mapping[str, Mapping[str, Any]] = USUAL,
    batch_size: int = 64,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    folder: PathLike | None = None,
    seed: int = 0,
    device: str = "auto",
    memory: int | str | None = None,
    observer: Observer | None = None,
    **options: Unpack[EvaluationKeywords],
) -> Comparison:
    """Plan with several planners, each in its own process, and rank the plans.

    Args:
        paths, pair, single: files, as `batchplan.load_embeddings` takes them. Each process reads
            them.
        planners: names; or options of planners by the name of the plan, which is a planner unless
            they have ``planner``: ``{"hard": {"planner": "partition", "mega_batches": 1}}``.
        batch_size: of planners whose options do not have it.
        labels, groups: as in `batchplan.evaluate`.
        folder: a folder of results. Its plans are used again, and other plans are added.
        seed, device, memory, observer: see `Runtime`.
        options: fields of `EvaluationOptions`. Planners use its similarity and temperature too.

    Raises:
        InputError, ResourceError, OutputError: as `compare_settings`, and as `load_embeddings`.
    """
    runtime, measured = Runtime.of(device, memory, seed, observer), EvaluationOptions(**options)
    tables = planners if isinstance(planners, Mapping) else {name: {} for name in planners}
    shared = {"similarity": measured.similarity, "temperature": measured.temperature}
    settings = [
        make_setting(name, table, {"batch_size": batch_size, **shared})
        for name, table in tables.items()
    ]
    source: dict[str, Any] = {
        "paths": [os.fspath(path) for path in listed(paths)],
        "single": single,
    }
    if pair is not None:
        source["pair"] = [os.fspath(path) for path in listed(pair)]
    embeddings = load_embeddings(**source, memory=memory, observer=observer)
    return compare_settings(
        settings, embeddings, source, measured, runtime, labels=labels, groups=groups,
        folder=None if folder is None else Path(folder),
        inputs=[*source["paths"], *source.get("pair", ())],
    )  # fmt: skip


def compare_settings(
    settings: Sequence[Setting],
    embeddings: Embeddings,
    source: Mapping[str, Any],
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    columns: Mapping[str, str | None] | None = None,
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
        columns: the names of their columns, by ``labels`` and ``group``.
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
    # Look up all results before any planner runs, so that a wrong file is reported at once.
    found: list[tuple[Setting, dict[str, Any], Result | None]] = []
    for setting in settings:
        made_with = origin(setting, embeddings, runtime.seed)
        kept = None if folder is None else find_result(folder, setting, made_with)
        found.append((setting, made_with, kept))
    plans: list[tuple[Setting, Result]] = []
    failures: list[tuple[Setting, Failure]] = []
    with runtime.stage("plans", total=len(settings)) as advance:
        for setting, made_with, kept in found:
            outcome: Result | Failure | None = kept
            if outcome is None:
                with runtime.stage(setting.name):
                    outcome = _make(setting, source, runtime, folder, made_with)
            runtime.note(PLANNED, f"{setting.name}, {_note(outcome)}")
            if isinstance(outcome, Failure):
                failures.append((setting, outcome))
            else:
                plans.append((setting, outcome))
            advance(1)
    evaluations = evaluate_plans(
        [result.plan for _, result in plans],
        embeddings, options, runtime, labels=labels, groups=groups, columns=columns,
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
    kept_in: Path | None,
    made_with: dict[str, Any],
) -> Result | Failure:
    """Run a planner, and add its plan to the results."""
    with tempfile.TemporaryDirectory(prefix="batchplan-") as scratch:
        folder = Path(scratch)
        cost = run_child(Job(setting, source, runtime), folder)
        if isinstance(cost, Failure):
            return cost
        if kept_in is not None:
            keep_result(kept_in, setting, made_with, folder / PLAN, cost)
        return Result(Plan.load(folder / PLAN), cost, kept=False)


def _note(outcome: Result | Failure) -> str:
    if isinstance(outcome, Failure):
        return outcome.error
    memory = format_bytes(outcome.cost.peak_memory_bytes)
    return f"{outcome.cost.seconds:.2f} s, {memory}{', kept' * outcome.kept}"
