"""`verify`: whether every training step saw the rows of its plan, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchplan.consumption.causes import CAUSES, Cause, Finding, causes_of
from batchplan.consumption.epochs import Dealt, Epoch
from batchplan.consumption.traces import MOST_MISSING_EPOCHS, Pass, Trace
from batchplan.errors import InputError
from batchplan.plans.plan import Plan

_SHOWN = 12  # rows of a batch, or epochs


@dataclass(frozen=True)
class Place:
    """Where steps first differ: an epoch, a step and a rank, with the rows; None for no step."""

    epoch: int
    step: int
    rank: int
    expected: list[int] | None
    seen: list[int] | None


@dataclass(frozen=True)
class Verdict:
    """What `verify` says.

    Attributes:
        epochs: those that were compared.
        findings: of each cause, the most special first: the epochs in which it applies, and what
            it says of the first of them.
        first: None if all is exact.
        skipped: epochs of the trace whose plans are not there.
    """

    epochs: list[Epoch]
    findings: dict[Cause, list[tuple[int, Finding]]]
    first: Place | None
    skipped: list[int]

    @property
    def exact(self) -> bool:
        return self.first is None

    @property
    def steps(self) -> int:
        """Steps that were compared, of all ranks."""
        return sum(epoch.grid.size for epoch in self.epochs)

    @property
    def wrong(self) -> int:
        """How many of them differ or are missing."""
        return sum(int((epoch.grid != 0).sum()) for epoch in self.epochs if not epoch.exact)

    @property
    def intact(self) -> tuple[int, int]:
        """Batches of the plans that some step saw whole, of how many."""
        counts = [epoch.intact for epoch in self.epochs]
        return sum(intact for intact, _ in counts), sum(of for _, of in counts)

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        ranks = self.epochs[0].devices
        where = f"{len(self.epochs)} epoch{'s' * (len(self.epochs) > 1)}"
        where += f", {ranks} rank{'s' * (ranks > 1)}"
        if self.exact:
            return f"exact: {self.steps:,} steps saw the rows of the plan ({where})"
        intact, batches = self.intact
        return (
            f"not exact: {self.wrong:,} of {self.steps:,} steps differ or are missing ({where}); "
            f"{intact:,} of {batches:,} batches of the plan are intact"
        )

    def where(self, cause: Cause) -> str:
        """The epochs in which a cause applies, in words."""
        numbers = [str(number) for number, _ in self.findings[cause]]
        more = ", …" * (len(numbers) > _SHOWN)
        return f"epoch{'s' * (len(numbers) > 1)} {', '.join(numbers[:_SHOWN])}{more}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        intact, batches = self.intact
        return {
            "exact": self.exact,
            "ranks": self.epochs[0].devices,
            "epochs": [epoch.number for epoch in self.epochs],
            "skipped_epochs": self.skipped,
            "steps": self.steps,
            "wrong_steps": self.wrong,
            "batches": batches,
            "intact_batches": intact,
            "causes": [
                {
                    "name": cause.name,
                    "sentence": cause.sentence,
                    "detail": places[0][1].detail,
                    "mend": cause.mend,
                    "epochs": [number for number, _ in places],
                }
                for cause, places in self.findings.items()
            ],
            "first": vars(self.first) if self.first else None,
        }


def verify(
    plans: Mapping[int, Plan], trace: Trace, *, epochs: int | None = None, partial: bool = False
) -> Verdict:
    """Compare what the steps of each rank saw with the rows and offsets of plans.

    A step is exact if it saw the rows of its batch, in any order.

    Args:
        plans: by the first epoch that they are for; each is for those up to the next.
        trace: what `batchplan.training.Recorder` wrote. Steps before its first are not judged.
        epochs: how many there must be; else all of the trace, and those that have a plan of their
            own.
        partial: whether the run may go on, so that steps may be missing at the end.

    Raises:
        InputError: plans of none of the epochs, or of epochs far after those of the trace.
    """
    seen = sorted(set().union(*trace.ranks))
    begun = trace.begun
    last = max([*seen, *([] if partial else plans), begun[0]])
    numbers = range(begun[0], last + 1 if epochs is None else max(epochs, begun[0] + 1))
    judged = range(max(numbers.start, min(plans)), numbers.stop)
    if not judged:
        raise InputError(
            f"plans: got those from epoch {min(plans)} on, but the trace ends with epoch {last}; "
            "give the plans of the epochs that were trained"
        )
    if epochs is None and len(judged) > len(seen) + MOST_MISSING_EPOCHS:
        raise InputError(
            f"plans: got one for epoch {last}, but the trace has only {len(seen)} epochs; leave it "
            "out, or pass --partial if the run goes on"
        )
    dealt = {number: Dealt(plan, len(trace.ranks)) for number, plan in plans.items()}
    compared = []
    for number in judged:
        own = max(epoch for epoch in plans if epoch <= number)
        compared.append(
            Epoch(
                number,
                dealt[own],
                [passes.get(number, Pass()) for passes in trace.ranks],
                first=begun[1] if number == begun[0] else 0,
                others={e: dealt[e] for e, p in plans.items() if p.digest != plans[own].digest},
                known={plan.digest for plan in plans.values()},
                over=not seen or number < seen[-1],
                partial=partial,
            )
        )
    findings: dict[Cause, list[tuple[int, Finding]]] = {}
    for epoch in compared:
        if not epoch.exact:
            for finding in causes_of(epoch):
                findings.setdefault(finding.cause, []).append((epoch.number, finding))
    order = [cause for cause in CAUSES if cause in findings]
    skipped = [number for number in seen if number < min(plans)]
    return Verdict(compared, {cause: findings[cause] for cause in order}, _first(compared), skipped)


def _first(epochs: list[Epoch]) -> Place | None:
    wrong = next((epoch for epoch in epochs if not epoch.exact), None)
    if wrong is None:
        return None
    index, rank = min(
        (int(step), int(rank)) for rank, step in zip(*wrong.grid.nonzero(), strict=True)
    )
    step = index + wrong.first
    wanted = wrong.expected[rank] if rank < len(wrong.expected) else []
    seen = wrong.passes[rank].rows.get(step) if rank < wrong.devices else None
    return Place(
        wrong.number,
        step,
        rank,
        wanted[step].tolist() if step < len(wanted) else None,
        None if seen is None else seen.tolist(),
    )


def batch_text(rows: list[int] | None) -> str:
    """The first rows of a batch, or that there was none."""
    if rows is None:
        return "no step"
    more = f" … ({len(rows):,} rows)" if len(rows) > _SHOWN else ""
    return " ".join(map(str, rows[:_SHOWN])) + more
