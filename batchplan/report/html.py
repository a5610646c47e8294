"""Renders HTML pages that load nothing and run no script."""

import base64
from importlib.resources import files

import jinja2
from markupsafe import Markup

import batchplan
from batchplan.report.figures.common import Picture
from batchplan.report.render import scheme, to_svg
from batchplan.text import one_line


def to_html(template: str, **values: object) -> str:
    """Render a page.

    Args:
        template: a Jinja template that extends ``layout.html``. Values are escaped in it, and made
            printable.
        values: the values that it names, and the ``title`` of the page.
    """
    own = files(__package__)
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else one_line(str(value)),
        loader=jinja2.FunctionLoader(lambda name: (own / name).read_text("utf-8")),
    )
    return environment.from_string(template).render(
        css=Markup((own / "style.css").read_text("utf-8")),
        scheme=Markup(scheme()),
        version=batchplan.__version__,
        **values,
    )


def shown(picture: Picture) -> dict[str, str]:
    """Return a picture for a template. Call it in `style`."""
    return {
        "name": picture.name,
        "title": picture.title,
        "caption": picture.caption,
        "label": picture.label,
        "svg": base64.b64encode(to_svg(picture.figure)).decode(),
    }
