"""The pairs of a plan that break the guard against false negatives, and the losses without them."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.options import LIMITS
from batchplan.plans import Plan
from batchplan.quality.evaluation import FalseNegative, GuardReport, MinedReport
from batchplan.quality.guard.all_rows import all_losses
from batchplan.quality.guard.in_batches import mean_losses
from batchplan.quality.guard.limits import LimitSource
from batchplan.quality.guard.pairs import AllowedPairs, allowed_pairs
from batchplan.quality.losses.batches import pairs_within
from batchplan.quality.losses.plans import quotient
from batchplan.quality.references import References, random_orders
from batchplan.quality.rows import spans

Int64Array = NDArray[np.int64]

_EXAMPLES = 10  # of false mined negatives
_ROWS_AT_ONCE = 4096
_NOISE = 1e-6  # relative to the largest logit: losses of float32 similarities this close are equal


class GuardMeter:
    """Measures plans of the same data with a guard; the pass over all rows is done once.

    Args:
        references: the data as it is measured, and the options.
        groups: int64 (N,), -1 for none.
        limit_from: where the limit of the options comes from.
    """

    def __init__(self, references: References, groups: Int64Array | None, limit_from: LimitSource):
        self._references = references
        self._groups = groups
        self._limit_from = limit_from
        self._random: dict[bytes, float] = {}

    def report(self, plan: Plan) -> GuardReport | None:
        """The report of a plan, None without a limit and without groups."""
        options, x = self._references.options, self._references.x
        if not options.limited and self._groups is None:
            return None
        n, offsets = x.num_rows, plan.batch_offsets
        directions, breaks = mean_losses(self._allowed, plan.rows, offsets)
        loss_train = _mean(directions)
        loss_random = self._random_loss(offsets)
        losses, broken = self._all_rows
        loss_global = self._references.sample.mean(losses)

        pairs = pairs_within(offsets)
        in_plan, by_negative = breaks.by.pop("any"), breaks.by.pop("negative")
        if mined := self._own_negatives:
            mined = replace(mined, broken=by_negative)
        gap_random = loss_global - loss_random
        defined = abs(gap_random) > _NOISE * self._references.bound / options.temperature
        return GuardReport(
            reference=self._references.fingerprint,
            planned_reference=_planned_reference(plan, self._references.fingerprint),
            without_groups=self._groups is None
            and plan.metadata.options.get("group_column") is not None,
            **{name: getattr(options, name) for name in LIMITS},
            limit_from=self._limit_from,
            pairs=pairs,
            broken=in_plan,
            broken_share=in_plan / pairs if pairs else None,
            # Two places of a random batch hold any two distinct rows with equal probability.
            broken_share_random=self._references.sample.total(broken) / (n * (n - 1)),
            by=breaks.by,
            rows_affected=int(breaks.affected.sum()),
            loss_train=loss_train,
            loss_global=loss_global,
            loss_random=loss_random,
            gap=loss_global - loss_train,
            gap_reduction=(loss_train - loss_random) / gap_random if defined else 0.0,
            mined=mined,
        )

    def standard_errors(self, report: GuardReport) -> dict[str, float]:
        """Those of the figures of a report that are estimates, by name."""
        sample = self._references.sample
        losses, broken = self._all_rows
        error = sample.standard_error(losses)
        whole = report.loss_global - report.loss_random
        return {
            "guard.loss_global": error,
            "guard.gap": error,
            "guard.gap_reduction": error * quotient(report.gap_reduction, whole),
            "guard.broken_share_random": sample.standard_error(broken) / (sample.num_rows - 1),
        }

    @cached_property
    def _allowed(self) -> AllowedPairs:
        return allowed_pairs(self._references, self._groups)

    @cached_property
    def _own_negatives(self) -> MinedReport | None:
        """The mined negatives that reach the ceiling of their own row; in no plan, so that it has
        no pairs."""
        mined, allowed = self._references.mined, self._allowed
        if not mined:
            return None
        rows = np.arange(allowed.x.num_rows)
        near = [mined.of_row(allowed.x, rows[slice(*at)]) for at in spans(len(rows), _ROWS_AT_ONCE)]
        similarities = torch.cat(near, dim=1)
        excess = similarities - allowed.ceilings
        false = excess >= 0
        order = torch.argsort(excess.flatten(), descending=True, stable=True)[:_EXAMPLES]
        worst = [divmod(int(place), len(rows)) for place in order if false.flatten()[place]]
        examples = [
            FalseNegative(
                row=row,
                negative=number + 1,
                similarity=float(similarities[number, row]),
                positive=float(
                    torch.linalg.vecdot(
                        *(side.gather(rows[row : row + 1]) for side in (allowed.x, allowed.y))
                    )
                ),
            )
            for number, row in worst
        ]
        return MinedReport(
            negatives=int((~mined.missing).sum()),
            false=int(false.sum()),
            rows_affected=int(false.any(dim=0).sum()),
            broken=0,
            examples=examples,
        )

    @cached_property
    def _all_rows(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`all_losses` of the sample."""
        references = self._references
        rows = references.sample.rows
        total = references.x.num_rows if rows is None else len(rows)
        with references.runtime.stage("allowed pairs", total=total) as advance:
            return all_losses(self._allowed, rows, advance)

    def _random_loss(self, offsets: Int64Array) -> float:
        """The mean loss over the allowed pairs of random plans; computed once per batch sizes."""
        key = offsets.tobytes()
        if key not in self._random:
            num_rows, runtime = self._references.x.num_rows, self._references.runtime
            trials, losses = self._references.options.random_trials, []
            with runtime.stage("allowed at random", total=trials) as advance:
                for rows in random_orders(num_rows, offsets, trials, runtime):
                    losses.append(_mean(mean_losses(self._allowed, rows, offsets)[0]))
                    advance(1)
            self._random[key] = float(np.mean(losses))
        return self._random[key]


def _planned_reference(plan: Plan, judge: str | None) -> str | None:
    """The fingerprint of the reference that the plan names; one equal to the data is as good as
    none, unless it judges now."""
    named = plan.metadata.options.get("reference")  # another tool may have written anything
    known = isinstance(named, str) and (named != plan.metadata.fingerprint or named == judge)
    return named if known else None


def _mean(directions: tuple[float, float]) -> float:
    return sum(directions) / 2
