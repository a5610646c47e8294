"""`check_plan`: measure a plan, and judge it by gates."""

from collections.abc import Sequence

from batchplan.data import Embeddings
from batchplan.gates.baseline import Baseline, comparable_settings
from batchplan.gates.gate import Gate
from batchplan.gates.verdicts import Judgement, judge
from batchplan.plans import Plan
from batchplan.quality import EvaluationOptions, RowFacts
from batchplan.quality.guard.limits import with_limit
from batchplan.quality.measure import evaluate_plans
from batchplan.quality.metrics import about, basis
from batchplan.quality.verdict import unlike_planned
from batchplan.runtime import Runtime


def check_plan(
    plan: Plan,
    embeddings: Embeddings,
    facts: RowFacts,
    gates: Sequence[Gate],
    options: EvaluationOptions,
    runtime: Runtime,
    *,
    name: str = "plan",
    baseline: Baseline | None = None,
    baseline_name: str = "baseline",
) -> tuple[Judgement, Baseline]:
    """Evaluate a plan and judge it by gates.

    Args:
        plan: of the N rows of the embeddings.
        embeddings: N pairs.
        facts: groups and the reference, as `RowFacts.read` returns them.
        gates: the limits; the kind ``fail-regress`` needs a baseline.
        options: how to measure, as for `batchplan.evaluate`.
        runtime: device, memory budget, seed of the random plans, progress.
        name: of the plan, shown in the judgement.
        baseline: of an earlier plan.
        baseline_name: its name in errors and warnings.

    Returns:
        The judgement, and the evaluation as a baseline for later plans.

    Raises:
        InputError: as `batchplan.evaluate`; a gate on a metric that is undefined or not measured,
            or a baseline with other settings.
        ResourceError: as `batchplan.evaluate`.
    """
    rows = embeddings.num_rows
    limited, _ = with_limit([plan], options)  # the limit that the baseline stores
    settings = comparable_settings(
        limited, batch_size=plan.batch_size, seed=runtime.seed,
        group_column=facts.group_column,
    )  # fmt: skip
    if baseline is not None:
        baseline.require_comparable(settings, rows, baseline_name)
    (evaluation,) = evaluate_plans([plan], embeddings, facts, options, runtime)
    measured = Baseline(
        num_rows=rows,
        fingerprint=embeddings.fingerprint,
        settings=settings,
        evaluation=evaluation.to_dict(),
    )
    measured_on = "; ".join(filter(None, (about(measured.evaluation), basis(measured.evaluation))))
    warnings = list(unlike_planned(evaluation))
    if baseline is not None and baseline.fingerprint != measured.fingerprint:
        warnings.append(
            f"{baseline_name}: measured on other embeddings (fingerprint "
            f"{baseline.fingerprint:.80}, these have {measured.fingerprint}): metrics may differ "
            "for that reason"
        )
    verdicts = judge(gates, measured.evaluation, baseline)
    return Judgement(name, measured_on, verdicts, tuple(warnings)), measured
