"""Renders the HTML page of a report. All text is escaped."""

from importlib.resources import files

from batchplan.quality.evaluation import FalseNegative
from batchplan.quality.metrics import basis, columns
from batchplan.report.contents import PlanContents, ReportContents
from batchplan.report.examples import Example
from batchplan.report.figures.common import Picture
from batchplan.report.figures.similarity import SIMILARITY_TEXT
from batchplan.report.html import shown, to_html
from batchplan.report.rows import MOST
from batchplan.report.tables import key_figures, plan_facts, settings
from batchplan.text import one_line

_LONGEST = 280  # characters of a text
_EXCERPT = 120  # the same, of the rows of batches
_SIMILARITY = "similarity-"
_MAIN = {
    "title": "Which rows share a batch",
    "caption": "Brighter is more similar. Left, all batches in training order; right, a few of "
    "them: training sees only the pairs inside a frame.",
}


def page(contents: ReportContents, pictures: list[Picture]) -> str:
    """Return the HTML page, which loads nothing from outside.

    Args:
        contents: what the page shows.
        pictures: drawn in `style`, in which this must be called, too.
    """
    data, folder = contents.embeddings, files(__package__)
    figures = {picture.name: shown(picture) for picture in pictures}
    verdicts = [plan.verdict for plan in contents.plans]
    shared = [said for said in verdicts[0].warnings if all(said in v.warnings for v in verdicts)]
    title = f"What {len(verdicts)} plans do to the batches"
    (_, sentence, guard), beside = contents.choice, []
    if len(verdicts) == 1:  # its main pictures are next to its figures
        title, sentence = "What a plan does to the batches", verdicts[0].sentence
        beside = [figures.pop("losses"), {**figures.pop("similarity-1"), **_MAIN}]
    return to_html(
        (folder / "page.html").read_text("utf-8"),
        title=title,
        verdict=f"{sentence[0].upper()}{sentence[1:]}.",
        guard=guard,
        warnings=shared,
        columns=", ".join(contents.columns),
        data=f"{data.num_rows:,} {'pairs' if data.paired else 'rows'}",
        batch_size=f"{contents.batch_size:,}",
        temperature=f"{contents.options.temperature:g}",
        basis=basis(contents.plans[0].evaluation.to_dict()),
        plans=[_plan(plan, shared) for plan in contents.plans],
        beside=beside,
        pictures=[one for name, one in figures.items() if not name.startswith(_SIMILARITY)],
        similarity=[one for name, one in figures.items() if name.startswith(_SIMILARITY)],
        similarity_text=SIMILARITY_TEXT,
        ranks=_ranks(contents),
        examples=[_examples(plan, contents) for plan in contents.plans],
        batches=_batches(contents),
        most_rows=MOST,
        mined=_mined(contents),
        key_figures=key_figures(contents),
        settings=list(settings(contents)),
    )


def _plan(plan: PlanContents, shared: list[str]) -> dict[str, object]:
    verdict = plan.verdict
    return {
        "name": plan.name,
        "planner": plan.planner,
        "aspects": verdict.aspects,
        "warnings": [said for said in verdict.warnings if said not in shared],
        "facts": list(plan_facts(plan)),
    }


def _ranks(contents: ReportContents) -> dict[str, object]:
    """Return a line of figures for each plan and for random batches."""
    cells = [columns(plan.evaluation.to_dict()) for plan in contents.plans]
    return {
        "heads": list(cells[0]),
        "plans": [
            (plan.name, [planned for planned, _ in own.values()])
            for plan, own in zip(contents.plans, cells, strict=True)
        ],
        "random": [random for _, random in cells[0].values()],
    }


def _examples(plan: PlanContents, contents: ReportContents) -> list[dict[str, object]]:
    """Return the pairs of the hardest batches, with texts if there are any."""
    y = contents.texts[1] if contents.texts else {}
    return [
        {"batch": pair.batch + 1, **_pair(pair, y.get(pair.negative, ""), contents)}
        for pair in plan.examples
    ]


def _batches(contents: ReportContents) -> list[dict[str, object]]:
    """Return the rows of each shown batch, with their texts."""
    x, y = contents.texts[:2] or ({}, {})
    of_row = {one.row: one.batch for one in contents.rows}
    found: dict[int, list[dict[str, object]]] = {}
    for one in contents.rows:
        others = [
            [
                {
                    "row": other.row, "shown": other.row in of_row, "reason": other.reason,
                    "similarity": f"{other.similarity:.2f}",
                    "text": _short(x.get(other.row, ""), _EXCERPT) if other in one.away else "",
                }
                for other in some
            ]
            for some in (one.negatives, one.away)
        ]  # fmt: skip
        shown = {
            "row": one.row, "positive": f"{one.positive:.2f}", "negatives": others[0],
            "away": others[1], "x": _short(x.get(one.row, ""), _EXCERPT),
            "own": _short(y.get(one.row, ""), _EXCERPT),
        }  # fmt: skip
        found.setdefault(one.batch, []).append(shown)
    return [{"number": batch + 1, "rows": rows} for batch, rows in found.items()]


def _mined(contents: ReportContents) -> dict[str, object] | None:
    """Return the mined negatives that are too similar to their own anchor, which are the same for
    all plans; None if there are none."""
    guard = contents.plans[0].evaluation.guard
    if guard is None or guard.mined is None or not guard.mined.false:
        return None
    others = dict(enumerate(contents.texts[2:], start=1))
    return {
        "said": f"{guard.mined.false:,} of {guard.mined.negatives:,} mined negatives are at least "
        "as similar to their own anchor as the guard allows.",
        "examples": [
            _pair(one, others.get(one.negative, {}).get(one.row, ""), contents)
            for one in guard.mined.examples
        ],
    }


def _pair(one: Example | FalseNegative, other: str, contents: ReportContents) -> dict[str, object]:
    """Return a row and a negative, with the texts of the row, its own pair and the ``other``."""
    x, y = contents.texts[:2] or ({}, {})
    return {
        "row": one.row,
        "negative": one.negative,
        "similarity": f"{one.similarity:.2f}",
        "positive": f"{one.positive:.2f}",
        "x": _short(x.get(one.row, "")),
        "own": _short(y.get(one.row, "")),
        "other": _short(other),
    }


def _short(text: str, longest: int = _LONGEST) -> str:
    """Return enough of a text to recognise it, on one line."""
    words = one_line(" ".join(text.split()))
    return words if len(words) <= longest else f"{words[:longest]}\N{HORIZONTAL ELLIPSIS}"
