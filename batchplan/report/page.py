"""The HTML page: pictures and tables in a template, all text escaped."""

from importlib.resources import files

from batchplan.quality.metrics import basis, percent, text_of
from batchplan.report.contents import PlanContents, ReportContents
from batchplan.report.figures.common import Picture
from batchplan.report.figures.false_negatives import shares
from batchplan.report.figures.similarity import similarity_text
from batchplan.report.html import shown, to_html
from batchplan.report.tables import key_figures, plan_facts, settings, stage_seconds


def page(contents: ReportContents, pictures: list[Picture]) -> str:
    """The whole HTML page, which loads nothing from outside and runs no script.

    Args:
        contents: what the page shows.
        pictures: drawn within `style`, in which this must be called, too.
    """
    data, folder = contents.embeddings, files(__package__)
    figures = [shown(picture) for picture in pictures]
    return to_html(
        (folder / "page.html").read_text("utf-8"),
        title=_title(contents),
        data=f"{data.num_rows:,} {'pairs' if data.paired else 'rows'}",
        batch_size=f"{contents.batch_size:,}",
        temperature=f"{contents.options.temperature:g}",
        basis=basis(contents.plans[0].evaluation),
        plans=[_plan(plan) for plan in contents.plans],
        pictures=[picture for picture in figures if not _is_similarity(picture["name"])],
        similarity=[picture for picture in figures if _is_similarity(picture["name"])],
        similarity_text=similarity_text(contents),
        knows_false_negatives=bool(shares(contents.plans[0].evaluation)),
        key_figures=key_figures(contents),
        stage_seconds=stage_seconds(contents),
        settings=list(settings(contents)),
    )


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
