"""The HTML page: pictures and tables in a template, all text escaped."""

from importlib.resources import files

import jinja2
from markupsafe import Markup

import batchplan
from batchplan.quality.metrics import basis, percent, text_of
from batchplan.report.contents import PlanContents, ReportContents
from batchplan.report.figures.common import Picture
from batchplan.report.figures.false_negatives import shares
from batchplan.report.figures.similarity import similarity_text
from batchplan.report.palette import DARK, LIGHT
from batchplan.report.render import to_svg
from batchplan.report.tables import key_figures, plan_facts, settings, stage_seconds
from batchplan.text import one_line


def page(contents: ReportContents, pictures: list[Picture]) -> str:
    """The whole HTML page, which loads nothing from outside and runs no script.

    Args:
        contents: what the page shows.
        pictures: drawn within `style`, in which this must be called, too.
    """
    data, folder = contents.embeddings, files(__package__)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=_printable
    )
    template = environment.from_string((folder / "page.html").read_text("utf-8"))
    shown = [
        {
            "name": picture.name,
            "title": picture.title,
            "caption": picture.caption,
            # The output of to_svg is escaped already.
            "svg": Markup(to_svg(picture.figure, picture.name, picture.label)),
        }
        for picture in pictures
    ]
    return template.render(
        title=_title(contents),
        css=Markup((folder / "style.css").read_text("utf-8")),
        light=LIGHT,
        dark=DARK,
        data=f"{data.num_rows:,} {'pairs' if data.paired else 'rows'}",
        batch_size=f"{contents.batch_size:,}",
        temperature=f"{contents.options.temperature:g}",
        basis=basis(contents.plans[0].evaluation),
        plans=[_plan(plan) for plan in contents.plans],
        pictures=[picture for picture in shown if not _is_similarity(picture["name"])],
        similarity=[picture for picture in shown if _is_similarity(picture["name"])],
        similarity_text=similarity_text(contents),
        knows_false_negatives=bool(shares(contents.plans[0].evaluation)),
        key_figures=key_figures(contents),
        stage_seconds=stage_seconds(contents),
        settings=list(settings(contents)),
        version=batchplan.__version__,
    )


def _printable(value: object) -> object:
    """A value for the template: our own markup, or text without unprintable characters."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _is_similarity(name: str) -> bool:
    return name.startswith("similarity-")


def _title(contents: ReportContents) -> str:
    count = len(contents.plans)
    return f"What {f'{count} plans do' if count > 1 else 'a plan does'} to the batches"


def _plan(plan: PlanContents) -> dict[str, object]:
    evaluation = plan.evaluation
    false = [
        f"{kind}: {percent(planned)}, {percent(random)} at random"
        for kind, planned, random in shares(evaluation)
    ]
    return {
        "name": plan.name,
        "planner": plan.planner,
        "gap_reduction": text_of(evaluation, "gap_reduction", "z.1%"),
        "loss": f"{evaluation.loss_train:.3f}",
        "loss_random": f"{evaluation.loss_random:.3f}",
        "false_negatives": false,
        "facts": list(plan_facts(plan)),
    }
