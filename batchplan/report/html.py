"""HTML pages that load nothing from outside, and run no script but their own."""

import hashlib
from base64 import b64encode
from importlib.resources import files

import jinja2
from markupsafe import Markup

import batchplan
from batchplan.report.figures.common import Picture
from batchplan.report.palette import DARK, LIGHT
from batchplan.report.render import to_svg
from batchplan.text import one_line


def to_html(template: str, *, script: str = "", **values: object) -> str:
    """A page, whose template includes ``head.html`` and ``foot.html``.

    Args:
        template: of Jinja; values are escaped in it.
        script: a file of ours, the only script that the page may run.
        values: that it names, among them ``title``.
    """
    own = files(__package__)
    source = (own / script).read_text("utf-8") if script else ""
    digest = b64encode(hashlib.sha256(source.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        loader=jinja2.FunctionLoader(lambda name: (own / name).read_text("utf-8")),
    )
    return environment.from_string(template).render(
        css=Markup((own / "style.css").read_text("utf-8")),
        light=LIGHT,
        dark=DARK,
        script=Markup(source),
        script_hash=Markup(f"sha256-{digest}"),
        version=batchplan.__version__,
        **values,
    )


def shown(picture: Picture) -> dict[str, str]:
    """A picture for a template; call it within `style`."""
    return {
        "name": picture.name,
        "title": picture.title,
        "caption": picture.caption,
        # The output of to_svg is escaped already.
        "svg": Markup(to_svg(picture.figure, picture.name, picture.label)),
    }


def _printable(value: object) -> object:
    """A value for the template: our own markup, or text without unprintable characters."""
    return value if isinstance(value, Markup) else one_line(str(value))
