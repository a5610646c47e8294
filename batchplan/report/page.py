"""Renders the HTML page of a report, which loads nothing and runs no script."""

from dataclasses import replace
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from typing import Any

import jinja2
from markupsafe import Markup

import batchplan
from batchplan.quality.metrics import basis, columns, texts
from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture
from batchplan.report.figures.similarity import SIMILARITY_TEXT
from batchplan.report.render import scheme
from batchplan.report.rows import MOST
from batchplan.report.tables import key_figures, plan_facts, settings
from batchplan.text import one_line

_LONGEST = 280  # characters of a text
_EXCERPT = 120  # the same, of the rows of batches
_BATCH = attrgetter("batch")
_SIMILARITY = "similarity-"
_KNOWN = "answers.known"
_MAIN: Any = {
    "title": "Which rows share a batch",
    "caption": "Brighter is more similar. Left, all batches in training order; right, a few of "
    "them: training sees only the pairs inside a frame.",
}


def page(contents: ReportContents, pictures: list[Picture]) -> str:
    """Return the HTML page.

    Args:
        contents: what the page shows.
        pictures: drawn in `style`, in which this must be called, too.
    """
    data, figures = contents.embeddings, {picture.name: picture for picture in pictures}
    verdicts = [plan.verdict for plan in contents.plans]
    shared = [said for said in verdicts[0].warnings if all(said in v.warnings for v in verdicts)]
    title = f"What {len(verdicts)} plans do to the batches"
    (_, sentence, guard), beside = contents.choice, []
    if len(verdicts) == 1:  # its main pictures are next to its figures
        title, sentence = "What a plan does to the batches", verdicts[0].sentence
        beside = [figures.pop("losses"), replace(figures.pop("similarity-1"), **_MAIN)]
    # Values are escaped, and made printable.
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else one_line(str(value)),
        loader=jinja2.FunctionLoader(_file),
    )
    return environment.get_template("page.html").render(
        css=Markup(_file("style.css")),
        scheme=Markup(scheme()),
        version=batchplan.__version__,
        title=title,
        verdict=f"{sentence[0].upper()}{sentence[1:]}.",
        guard=guard,
        warnings=shared,
        columns=", ".join(filter(None, contents.columns)),
        data=f"{data.num_rows:,} {'pairs' if data.paired else 'rows'}",
        batch_size=f"{contents.batch_size:,}",
        temperature=f"{contents.options.temperature:g}",
        basis=basis(contents.plans[0].evaluation.to_dict()),
        plans=contents.plans,
        plan_facts=plan_facts,
        beside=beside,
        pictures=[one for name, one in figures.items() if not name.startswith(_SIMILARITY)],
        similarity=[one for name, one in figures.items() if name.startswith(_SIMILARITY)],
        similarity_text=SIMILARITY_TEXT,
        ranks=[columns(plan.evaluation.to_dict()) for plan in contents.plans],
        examples=[plan.examples for plan in contents.plans],
        batches=[(batch + 1, [*rows]) for batch, rows in groupby(contents.rows, _BATCH)],
        shown_rows={one.row for one in contents.rows},
        most_rows=MOST,
        text=lambda side, row, most=_LONGEST: _short(contents.text(side, row), most),
        mined=getattr(contents.plans[0].evaluation.guard, "mined", None),
        known=[
            values[_KNOWN]
            for plan in contents.plans
            if _KNOWN in (values := texts(plan.evaluation.to_dict()))
        ],
        excerpt=_EXCERPT,
        key_figures=key_figures(contents),
        settings=list(settings(contents)),
    )


def _file(name: str) -> str:
    """Return the text of a file of this folder."""
    return (files(__package__) / name).read_text("utf-8")


def _short(text: str, longest: int = _LONGEST) -> str:
    """Return enough of a text to recognise it, on one line."""
    words = one_line(" ".join(text.split()))
    return words if len(words) <= longest else f"{words[:longest]}\N{HORIZONTAL ELLIPSIS}"
