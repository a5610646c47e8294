"""Makes a plan with each setting, measures all plans on the same data, and ranks them."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import ArrayLike

from batchplan.comparison.children import Cost, Failure, run_child
from batchplan.comparison.ranking import Comparison, Ranked
from batchplan.comparison.settings import USUAL, Setting, check_folder, make_setting, plan_path
from batchplan.data import Embeddings, load_embeddings
from batchplan.files.atomic import made_folder, write_files
from batchplan.files.inputs import PathLike, listed
from batchplan.keywords import EvaluationKeywords
from batchplan.options import ShardOrder, with_options
from batchplan.plans import Plan
from batchplan.quality import EvaluationOptions, RowFacts, evaluate_plans
from batchplan.quality.verdict import ranking
from batchplan.runtime import PLANNED, Observer, Runtime, format_bytes


@with_options(EvaluationOptions)
def compare(
    paths: PathLike | Sequence[PathLike],
    pair: PathLike | Sequence[PathLike] | None = None,
    *,
    single: bool = False,
    shard_order: ShardOrder | None = None,
    planners: Sequence[str] | Mapping[str, Mapping[str, Any]] = USUAL,
    batch_size: int = 64,
    groups: ArrayLike | None = None,
    folder: PathLike | None = None,
    force: bool = False,
    seed: int = 0,
    device: str = "auto",
    memory: int | str | None = None,
    observer: Observer | None = None,
    **options: Unpack[EvaluationKeywords],
) -> Comparison:
    """Plan with several planners, each in its own process, and rank the plans.

    Args:
        paths, pair, single, shard_order: files, as `batchplan.load_embeddings` takes them. Each
            process reads them.
        planners: names; or options of planners by the name of the plan, which is a planner unless
            they have ``planner``: ``{"hard": {"planner": "partition", "mega_batches": 1}}``.
        batch_size: of planners whose options do not have it.
        groups: as in `batchplan.evaluate`.
        folder: a folder to which the plans are written, as ``NAME.npz``.
        force: whether to replace plans in it.
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
    sides = {"paths": paths} if pair is None else {"paths": paths, "pair": pair}
    files = {name: [os.fspath(path) for path in listed(side)] for name, side in sides.items()}
    source: dict[str, Any] = {**files, "single": single, "shard_order": shard_order}
    kept = None if folder is None else Path(folder)
    if kept is not None:
        check_folder(kept, settings, [*chain(*files.values())], force=force)
    embeddings = load_embeddings(**source, memory=memory, observer=observer)
    facts = RowFacts.read(embeddings, measured, runtime, groups)
    return compare_settings(settings, embeddings, facts, source, measured, runtime, folder=kept)


def compare_settings(
    settings: Sequence[Setting],
    embeddings: Embeddings,
    facts: RowFacts,
    source: Mapping[str, Any],
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    folder: Path | None = None,
) -> Comparison:
    """Make a plan with each setting, and rank the plans.

    Args:
        settings: from `make_setting` or `read_settings`, with different names.
        embeddings: N pairs.
        facts: groups and the reference, as `RowFacts.read` returns them.
        source: the arguments of `load_embeddings` for the same data, such as ``{"paths": ...}``.
            Each planner reads the data in its own process.
        options: how to measure.
        runtime: device, memory and seed of planners and measures; progress.
        folder: where the plans are written, checked by `check_folder`.

    Raises:
        InputError: as `batchplan.evaluate`. Errors of a planner become failures in the comparison.
        ResourceError: not enough memory to measure, or no such device.
        OutputError: a plan could not be written.
    """
    plans: list[tuple[Setting, Plan, Cost]] = []
    failures: list[tuple[Setting, Failure]] = []
    with runtime.stage("plans", total=len(settings)) as advance:
        for setting in settings:
            with runtime.stage(setting.name):
                made = _make(setting, source, runtime, folder)
            if isinstance(made, Failure):
                failures.append((setting, made))
                note = made.error
            else:
                plan, cost = made
                plans.append((setting, plan, cost))
                note = f"{cost.seconds:.2f} s, {format_bytes(cost.peak_memory_bytes)}"
            runtime.note(PLANNED, f"{setting.name}, {note}")
            advance(1)
    made_plans = [plan for _, plan, _ in plans]
    evaluations = evaluate_plans(made_plans, embeddings, facts, options, runtime)
    ranked = [
        Ranked(setting, evaluation, cost)
        for (setting, _, cost), evaluation in zip(plans, evaluations, strict=True)
    ]
    ranked.sort(key=lambda plan: plan.setting.name)
    order = ranking([plan.evaluation for plan in ranked])
    return Comparison([ranked[at] for at in order], failures)


def _make(
    setting: Setting, source: Mapping[str, Any], runtime: Runtime, folder: Path | None
) -> tuple[Plan, Cost] | Failure:
    """Run a planner, and write its plan to the folder, which may not exist yet."""
    with tempfile.TemporaryDirectory(prefix="batchplan-") as scratch:
        made = Path(scratch) / "plan.npz"
        cost = run_child(setting, source, runtime, made)
        if isinstance(cost, Failure):
            return cost
        if folder is not None:
            with made_folder(folder):
                write_files({plan_path(folder, setting): made.read_bytes()})
        return Plan.load(made), cost
