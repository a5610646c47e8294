"""`verify`: check that every training step saw the rows of its plan, and find causes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchplan.consumption.causes import CAUSES, Cause, causes_of
from batchplan.consumption.epochs import EXACT, Dealt, Epoch
from batchplan.consumption.traces import Pass, Trace
from batchplan.errors import BatchplanError, InputError
from batchplan.plans.plan import Plan
from batchplan.text import counted

if TYPE_CHECKING:
    from batchplan.consumption.known import KnownAnswers

_SHOWN = 12  # rows of a batch, or epochs
# A verdict has all epochs and steps up to the last, and a line of a trace may claim any. Nothing
# trains so that more are missing, whatever the trace: epochs, and steps for each that is there.
_MOST_ABSENT, _MOST_MISSING, _MISSING_EACH = 100, 1 << 22, 100
_TOO_FEW = (
    "which are too few to compare; give the plans and the trace of one run, and the number of its "
    "epochs with --epochs"
)


@dataclass(frozen=True)
class Place:
    """The first step that differs, with its rows; None instead of rows if there is no step."""

    epoch: int
    step: int
    rank: int
    expected: list[int] | None
    seen: list[int] | None


@dataclass(frozen=True)
class Consumption:
    """The result of `verify`.

    Attributes:
        epochs: the compared epochs.
        findings: by cause, the most special first: the epochs to which it applies, with details.
        first: the first step that differs; None if all steps are exact.
        skipped: epochs of the trace before the first plan.
        known: known answers that met as negatives; None if the plans name no ids.
        unread: why known answers were not counted although the plans name ids; else "".
    """

    epochs: list[Epoch]
    findings: dict[Cause, list[tuple[int, str]]]
    first: Place | None
    skipped: list[int]
    known: "KnownAnswers | None" = None
    unread: str = ""

    @property
    def exact(self) -> bool:
        """Whether each step saw the rows of its batch."""
        return self.first is None

    @property
    def steps(self) -> int:
        """Number of compared steps, of all ranks."""
        return sum(epoch.grid.size for epoch in self.epochs)

    @property
    def wrong(self) -> int:
        """Number of steps that differ or are missing."""
        return sum(int((epoch.grid != 0).sum()) for epoch in self.epochs if not epoch.exact)

    @property
    def intact(self) -> tuple[int, int]:
        """How many batches of the plans some step saw whole, and how many the plans have."""
        whole, batches = np.sum([epoch.intact for epoch in self.epochs], axis=0).tolist()
        return whole, batches

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        ranks, count = self.epochs[0].devices, len(self.epochs)
        where = f"{counted(count, 'epoch')}, {counted(ranks, 'rank')}"
        if self.exact:
            return f"exact: {counted(self.steps, 'step')} saw the rows of the plan ({where})"
        intact, batches = self.intact
        return (
            f"not exact: {self.wrong:,} of {self.steps:,} steps differ or are missing ({where}); "
            f"{intact:,} of {batches:,} batches of the plan are intact"
        )

    def where(self, cause: Cause) -> str:
        """The epochs to which a cause applies, in words."""
        numbers = [str(number) for number, _ in self.findings[cause]]
        more = ", …" * (len(numbers) > _SHOWN)
        return f"epoch{'s' * (len(numbers) > 1)} {', '.join(numbers[:_SHOWN])}{more}"

    def detail(self, cause: Cause) -> str:
        """The details of a cause in the first epoch to which it applies."""
        return self.findings[cause][0][1]

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON values."""
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
                    "detail": self.detail(cause),
                    "mend": cause.mend,
                    "epochs": [number for number, _ in places],
                }
                for cause, places in self.findings.items()
            ],
            "first": vars(self.first) if self.first else None,
            "known_answers": vars(self.known) if self.known else None,
            "not_counted": self.unread,
        }


def verify(
    plans: Mapping[int, Plan],
    trace: Trace,
    *,
    epochs: int | None = None,
    partial: bool = False,
    label_table: str | None = None,
    known: str | None = None,
    id_column: str | None = None,
) -> Consumption:
    """Compare the rows that each rank saw in each step with the batches of plans.

    A step is exact if it saw the rows of its batch, in any order.

    Args:
        plans: plans by their first epoch. Each is used until the first epoch of the next plan.
        trace: the files of `batchplan.training.Recorder`. Steps before the first recorded step are
            not judged.
        epochs: number of epochs that must be there. None: the epochs of the trace, and those
            for which there is a plan.
        partial: whether the run may go on, so that steps may be missing at the end.
        label_table: the Parquet file with the ids that the plans name; None for their own table,
            which need not exist any more.
        known: the list of known answers; None for that of the plans, which need not exist either.
        id_column: of the row ids in the label table, to compare with those that were planned; None
            for ``id``, if there is one, "" for none.

    Raises:
        InputError: no plan is for an epoch of the trace, or nearly all of its steps are missing;
            or ``label_table`` or ``known`` is given and the known answers cannot be counted.
    """
    seen = sorted(set().union(*trace.ranks))
    epoch, step = trace.begun
    last = max([*seen, *([] if partial else plans), epoch])
    stop = last + 1 if epochs is None else max(epochs, epoch + 1)
    judged = range(max(epoch, min(plans)), stop)
    if not judged:
        raise InputError(
            f"plans: got those from epoch {min(plans)} on, but the trace ends with epoch {last}; "
            "give the plans of the epochs that were trained"
        )
    if epochs is None and len(judged) > len(seen) + _MOST_ABSENT:
        raise InputError(f"trace: got {len(seen):,} epochs of {last + 1:,}, {_TOO_FEW}")
    dealt = {number: Dealt(plan, len(trace.ranks)) for number, plan in plans.items()}
    owners = {number: max(first for first in plans if first <= number) for number in judged}
    compared = [
        Epoch(
            number,
            dealt[own],
            [passes.get(number, Pass()) for passes in trace.ranks],
            first=step if number == epoch else 0,
            others={e: dealt[e] for e, p in plans.items() if p.digest != plans[own].digest},
            known={d for plan in plans.values() for d in (plan.digest, plan.begun)},
            over=not seen or number < seen[-1],
            partial=partial,
        )
        for number, own in owners.items()
    ]
    _require_proportion(compared)
    skipped = [number for number in seen if number < min(plans)]
    met = _known(compared, id_column, {"label_table": label_table, "known": known})
    return Consumption(compared, _findings(compared), _first(compared), skipped, *met)


def _known(
    epochs: list[Epoch], id_column: str | None, moved: dict[str, str | None]
) -> "tuple[KnownAnswers | None, str]":
    """Return the known answers that met, and why they were not counted."""
    named = [epoch.dealt.plan.metadata.options.get for epoch in epochs]
    have = [bool(get("anchor_id") or get("positive_id")) for get in named]
    if not any(have) and not any(moved.values()):
        return None, ""
    from batchplan.consumption.known import known_answers  # plans without ids need no torch

    try:
        if not all(have):
            number = epochs[have.index(False)].number
            raise InputError(
                f"the plan of epoch {number} names no ids; plan it with --anchor-id or "
                "--positive-id, or leave out --label-table and --known"
            )
        return known_answers(epochs, id_column, **moved), ""
    except BatchplanError as error:
        if any(moved.values()):
            raise
        return None, str(error)


def _require_proportion(epochs: list[Epoch]) -> None:
    """Refuse a trace of which nearly all is missing, as it would take out of proportion to its
    size; raises InputError."""
    steps = [
        max(*map(len, epoch.dealt.keys), *(run.steps for run in epoch.passes)) - epoch.first
        for epoch in epochs
    ]
    claimed = sum(steps) * epochs[0].devices
    recorded = sum(len(run.rows) for epoch in epochs for run in epoch.passes)
    planned = max(len(epoch.dealt.plan) for epoch in epochs)
    if claimed > _MOST_MISSING + _MISSING_EACH * (recorded + planned):
        raise InputError(f"trace: got {recorded:,} steps of {claimed:,}, {_TOO_FEW}")


def _findings(epochs: list[Epoch]) -> dict[Cause, list[tuple[int, str]]]:
    findings: dict[Cause, list[tuple[int, str]]] = {cause: [] for cause in CAUSES}
    for epoch in epochs:
        if not epoch.exact:
            for cause, detail in causes_of(epoch):
                findings[cause].append((epoch.number, detail))
    return {cause: places for cause, places in findings.items() if places}


def _first(epochs: list[Epoch]) -> Place | None:
    """The first step of any rank that differs."""
    for epoch in epochs:
        if not epoch.exact:
            index, rank = divmod(int((epoch.grid.T != EXACT).argmax()), len(epoch.grid))
            step, parts = index + epoch.first, epoch.dealt.steps
            wanted = parts[rank][step : step + 1] if rank < len(parts) else []
            runs = epoch.passes[rank : rank + 1]
            seen = [run.rows[step] for run in runs if step in run.rows]
            rows = [part[0].tolist() if part else None for part in (wanted, seen)]
            return Place(epoch.number, step, rank, *rows)
    return None


def batch_text(rows: list[int] | None) -> str:
    """Return the first rows of a batch as text; "no step" for None."""
    if rows is None:
        return "no step"
    more = f" … ({len(rows):,} rows)" if len(rows) > _SHOWN else ""
    return " ".join(map(str, rows[:_SHOWN])) + more
