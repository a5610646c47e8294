"""Counts known answers that met as negatives in training and in the plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from batchplan.consumption.epochs import Epoch
from batchplan.data import Embeddings
from batchplan.data.answer_options import ANSWER_OPTIONS, AnswerOptions
from batchplan.data.answers import Answers, answers_of
from batchplan.data.table_files import check_count, check_planned, opened
from batchplan.errors import InputError
from batchplan.files.remote import no_url
from batchplan.plans.plan import Plan
from batchplan.quality.known import AnswerReport, known_negatives
from batchplan.typing import Int64Array


@dataclass(frozen=True)
class KnownAnswers:
    """Known answers among the negatives from anchors to documents, of all compared epochs.

    Attributes:
        trained, planned: how many met in the recorded steps, and in the plans.
        trained_negatives, planned_negatives: of how many negatives.
        epoch, row, other: the first epoch of the recorded steps that has any, a row, and another
            row of its batch that has an answer of its anchor; None if none met.
    """

    trained: int
    planned: int
    trained_negatives: int
    planned_negatives: int
    epoch: int | None = None
    row: int | None = None
    other: int | None = None

    def __str__(self) -> str:
        said = (
            f"{self.trained:,} of {self.trained_negatives:,} trained negatives, {self.planned:,} "
            f"of {self.planned_negatives:,} planned"
        )
        if self.epoch is None:
            return said
        return f"{said}\nsuch as row {self.other} for row {self.row} in epoch {self.epoch}"


def known_answers(
    epochs: Sequence[Epoch], id_column: str | None = None, **moved: str | None
) -> KnownAnswers:
    """Count the known answers by the ids that the plans name.

    Equal vectors are not seen: without the data, only ids tell answers.

    Args:
        epochs: whose recorded steps are compared with their plans.
        id_column: of the label table, to compare with the ids that were planned; None for ``id``,
            if there is one, "" for none.
        moved: the files that replace ``label_table`` and ``known`` of the plans, unless None.

    Raises:
        BatchplanError: the ids, or the list of known answers, cannot be read; the label table has
            other row ids; or joined plans name different columns.
    """
    counts, read = np.zeros(4, np.int64), dict[str, Answers]()
    of_plans: dict[tuple[int, int], AnswerReport] = {}
    first: tuple[int, ...] = ()
    for epoch in epochs:
        plan = epoch.dealt.plan
        named: dict[str, Any] = {n: plan.metadata.options.get(n) for n in ANSWER_OPTIONS}
        named |= {n: path for n, path in moved.items() if path is not None}
        _require_one(named)
        digest, options = plan.metadata.ids_digest, AnswerOptions(**named)
        if (key := f"{digest} {options}") not in read:
            read[key] = _read(options, plan.metadata.num_rows, digest, id_column)
        if (place := (id(epoch.dealt), epoch.first)) not in of_plans:
            of_plans[place] = known_negatives(_plan_of(epoch.planned, plan), read[key])
        trained = planned = of_plans[place]
        if epoch.grid.any():  # else these are the batches of the plan
            trained = known_negatives(_plan_of(epoch.trained, plan), read[key])
        counts += trained.known, planned.known, trained.negatives, planned.negatives
        if trained.known and not first:
            first = epoch.number, trained.examples[0].row, trained.examples[0].other
    return KnownAnswers(*counts.tolist(), *first)


def _require_one(named: dict[str, Any]) -> None:
    """Refuse several columns or lists, as `batchplan.plans.concat` joins those of its parts."""
    column = "name the columns alike, and plan the parts again"
    mends = {"anchor_id": column, "positive_id": column, "known": "give one list with --known"}
    for name, mend in mends.items():
        if isinstance(value := named[name], list):
            raise InputError(
                f"the plans that were joined have several --{name.replace('_', '-')} "
                f"({', '.join(map(str, value)):.80}), expected one; {mend}"
            )


def _read(
    options: AnswerOptions, num_rows: int, digest: str | None, id_column: str | None
) -> Answers:
    """Return the known answers of a plan's options; a plan may come from anywhere, so it opens no
    URL, and the table is counted before memory for the rows is taken."""
    if options.label_table is None:
        raise InputError(
            "the plan names ids, but no file that has them; give it with --label-table"
        )
    files = (options.label_table, "ids with --label-table"), (options.known, "list with --known")
    for name, what in files:
        if name is not None and not no_url(name).exists():
            raise InputError(f"{name}: no such file; give the {what}")
    table = Path(options.label_table)
    with opened(table) as file:
        check_count(file.num_rows, num_rows, str(table))
    check_planned(table, digest, id_column)
    return answers_of(Embeddings.alike(num_rows), options, equal=False)


def _plan_of(batches: Sequence[Int64Array], plan: Plan) -> Plan:
    """Return batches as a plan, without rows that the data of ``plan`` do not have."""
    kept = [rows[rows < plan.metadata.num_rows] for rows in batches]
    offsets = np.cumsum([0, *map(len, kept)])
    return Plan(np.concatenate([np.zeros(0, np.int64), *kept]), offsets, plan.metadata)
