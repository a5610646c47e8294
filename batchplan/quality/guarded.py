"""Counts the pairs of a plan that break the guard, and measures the losses without them."""

from dataclasses import replace

import numpy as np
import torch

from batchplan.options import LIMITS, MUCH_EXCLUDED
from batchplan.plans import Plan
from batchplan.quality.evaluation import FalseNegative, GuardReport, MinedReport
from batchplan.quality.facts import RowFacts
from batchplan.quality.guard.limits import LimitSource
from batchplan.quality.losses.in_batches import Breaks, pairs_within
from batchplan.quality.losses.plans import loss_figures
from batchplan.quality.measured import Measured
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.pairs import Pairs
from batchplan.quality.rows import spans

_EXAMPLES = 10  # of false mined negatives
_ROWS_AT_ONCE = 4096


def guard_report(
    measured: Measured,
    breaks: Breaks,
    mined: MinedReport | None,
    facts: RowFacts,
    options: EvaluationOptions,
    limit_from: LimitSource,
) -> tuple[GuardReport, dict[str, float]]:
    """Return the report of a plan, and the standard errors of its estimates by dotted name.

    Args:
        measured: the plan and its statistics, with a guard.
        breaks: its pairs that break the guard.
        mined: `false_mined` of the data.
        facts: the groups, and the reference that judges.
        limit_from: where the limit of the ``options`` comes from.
    """
    plan, sample = measured.plan, measured.sample
    figures, errors = loss_figures(measured, "allowed", measured.random.allowed)
    n, broken = sample.num_rows, measured.outside[0].broken
    figures["hardness"] = figures.pop("gap_reduction")
    hardness_error = errors.pop("gap_reduction")
    errors["false_negatives_random"] = sample.standard_error(broken / (n - 1))
    within = pairs_within(plan.batch_offsets)
    # Two places of a random batch hold any two distinct rows with equal probability.
    excluded = sample.total(broken) / (n * (n - 1))
    by_groups = 0.0
    if facts.groups is not None:
        sizes = np.bincount(facts.groups[facts.groups >= 0])
        by_groups = int(sizes @ (sizes - 1)) / (n * (n - 1))
    excludes_much = excluded - by_groups > MUCH_EXCLUDED
    if limit_from == "default" and excludes_much:
        limit_from = "rejected"
    reference = None if facts.reference is None else facts.reference.fingerprint
    planned_groups = plan.metadata.options.get("group_column") is not None
    by = dict(breaks.by)
    in_plan, by_negative = by.pop("any"), by.pop("negative")
    report = GuardReport(
        reference=reference,
        planned_reference=_planned_reference(plan, reference),
        without_groups=planned_groups and facts.groups is None,
        **{name: getattr(options, name) for name in LIMITS},
        limit_from=limit_from,
        pairs=within,
        broken=in_plan,
        false_negatives=in_plan / within if within else None,
        false_negatives_random=excluded,
        excludes_much=excludes_much,
        by=by,
        rows_affected=int(breaks.affected.sum()),
        **figures,
        mined=None if mined is None else replace(mined, broken=by_negative),
    )
    errors = {f"guard.{name}": error for name, error in errors.items()}
    return report, {**errors, "hardness": hardness_error}


def false_mined(pairs: Pairs) -> MinedReport | None:
    """Find the mined negatives that reach the ceiling of their own row; None without any.

    It is the same for all plans; ``broken`` is 0.
    """
    mined, guard = pairs.mined, pairs.guard
    if not mined or guard is None:
        return None
    rows = np.arange(pairs.num_rows)
    near = [mined.of_row(pairs.x, rows[slice(*at)]) for at in spans(len(rows), _ROWS_AT_ONCE)]
    similarities = torch.cat(near, dim=1)
    excess = similarities - guard.ceilings
    false = excess >= 0
    order = torch.argsort(excess.flatten(), descending=True, stable=True)[:_EXAMPLES]
    examples = []
    for place in order[false.flatten()[order]].tolist():
        number, row = divmod(place, len(rows))
        sides = (side.gather(rows[row : row + 1]) for side in (pairs.x, pairs.y))
        positive = float(torch.linalg.vecdot(*sides))
        similarity = float(similarities[number, row])
        examples.append(
            FalseNegative(row=row, negative=number + 1, similarity=similarity, positive=positive)
        )
    return MinedReport(
        negatives=int((~mined.missing).sum()),
        false=int(false.sum()),
        rows_affected=int(false.any(dim=0).sum()),
        broken=0,
        examples=examples,
    )


def _planned_reference(plan: Plan, judge: str | None) -> str | None:
    """Return the fingerprint of the reference that the plan names.

    A reference that equals the data counts as none, unless it judges now.
    """
    named = plan.metadata.options.get("reference")  # another tool may have written anything
    known = isinstance(named, str) and (named != plan.metadata.fingerprint or named == judge)
    return named if known else None
