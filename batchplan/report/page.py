"""The page: pictures and tables put into the template, everything else escaped."""

from importlib.resources import files

import jinja2
from markupsafe import Markup

import batchplan
from batchplan.quality.metrics import percent
from batchplan.report.contents import PlanContents, ReportContents
from batchplan.report.figures.common import Picture
from batchplan.report.figures.false_negatives import shares
from batchplan.report.figures.similarity import similarity_text
from batchplan.report.palette import DARK, LIGHT
from batchplan.report.render import to_svg
from batchplan.report.tables import key_figures, plan_facts, settings, stage_seconds
from batchplan.text import one_line


def page(contents: ReportContents, pictures: list[Picture]) -> str:
    """The whole HTML page, which asks for nothing outside itself and runs no script.

    Args:
        contents: what is shown.
        pictures: of it; drawn within `style`, and this is to be called there.
    """
    data, folder = contents.embeddings, files(__package__)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=_printable
    )
    template = environment.from_string((folder / "page.html").read_text("utf-8"))
    shown = [
        {
            "name": one.name,
            "title": one.title,
            "caption": one.caption,
            # What to_svg gives is escaped already.
            "svg": Markup(to_svg(one.figure, one.name, one.label)),
        }
        for one in pictures
    ]
    return template.render(
        title=_title(contents),
        css=Markup((folder / "style.css").read_text("utf-8")),
        light=LIGHT,
        dark=DARK,
        data=f"{data.num_rows:,} {'pairs' if data.paired else 'rows'}",
        batch_size=f"{contents.batch_size:,}",
        temperature=f"{contents.options.temperature:g}",
        plans=[_plan(one) for one in contents.plans],
        pictures=[one for one in shown if not _is_similarity(one["name"])],
        similarity=[one for one in shown if _is_similarity(one["name"])],
        similarity_text=similarity_text(contents),
        knows_false_negatives=bool(shares(contents.plans[0].evaluation)),
        key_figures=key_figures(contents),
        stage_seconds=stage_seconds(contents),
        settings=list(settings(contents)),
        version=batchplan.__version__,
    )


def _printable(value: object) -> object:
    """What the template puts in: markup of ours, or text with nothing that a page cannot hold."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _is_similarity(name: str) -> bool:
    return name.startswith("similarity-")


def _title(contents: ReportContents) -> str:
    count = len(contents.plans)
    return f"What {f'{count} plans do' if count > 1 else 'a plan does'} to the batches"


def _plan(one: PlanContents) -> dict[str, object]:
    found = one.evaluation
    false = [
        f"{kind}: {percent(planned)}, {percent(random)} at random"
        for kind, planned, random in shares(found)
    ]
    return {
        "name": one.name,
        "planner": one.planner,
        "gap_reduction": f"{found.gap_reduction:z.1%}",
        "loss": f"{found.loss_train:.3f}",
        "loss_random": f"{found.loss_random:.3f}",
        "false_negatives": false,
        "facts": list(plan_facts(one)),
    }
