"""Measures plans, draws pictures, and writes a report of them."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import ArrayLike

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.files.atomic import made_folder, write_files
from batchplan.files.inputs import PathLike
from batchplan.files.remote import no_url
from batchplan.keywords import EvaluationKeywords
from batchplan.options import with_options
from batchplan.plans import Plan
from batchplan.plans.output import check_file, check_files
from batchplan.quality import EvaluationOptions, RowFacts
from batchplan.quality.pairs import unguarded_pairs
from batchplan.report.atlas import atlas_table
from batchplan.report.contents import ReportContents, gather
from batchplan.report.figures.common import Picture
from batchplan.report.figures.histogram import histogram
from batchplan.report.figures.losses import losses
from batchplan.report.figures.similarity import similarity_pictures
from batchplan.report.page import page
from batchplan.report.render import style, to_png
from batchplan.runtime import Observer, Runtime

_SUFFIXES = ".html", ".htm"


@with_options(EvaluationOptions)
def write_report(
    plans: Mapping[str, Plan],
    embeddings: Embeddings,
    output: PathLike,
    *,
    groups: ArrayLike | None = None,
    group_column: str | None = None,
    texts: Sequence[str] | None = None,
    text_table: str | None = None,
    rows: Sequence[int] = (),
    png: PathLike | None = None,
    atlas: PathLike | None = None,
    force: bool = False,
    inputs: Sequence[PathLike] = (),
    device: str = "auto",
    memory: int | str | None = None,
    seed: int = 0,
    observer: Observer | None = None,
    **options: Unpack[EvaluationKeywords],
) -> ReportContents:
    """Measure plans of the same data and write an HTML page that shows them.

    The same plans, data, options and versions give the same bytes.

    Args:
        plans: one to six of the same batch size, by the names to show.
        embeddings: N pairs of rows.
        output: the page to write, ``.html``.
        groups: as in `batchplan.quality.evaluate`.
        group_column: the name of their column.
        texts: the columns of the texts of x and of y, or one for both, to show examples with; None
            looks for likely ones, as `batchplan.data.texts.likely_columns`.
        text_table: the file that has them; None for the files of the embeddings.
        rows: rows to show with their batches, before rows of the hardest batches, in a report of
            one plan.
        png: a folder to write the pictures to as well.
        atlas: a Parquet file for embedding-atlas to write as well, in a report of one plan; see
            `batchplan.report.atlas.atlas_table`.
        force: whether existing files may be replaced.
        inputs: files and folders that must not be written to.
        device, memory, seed, observer: see `Runtime`; the seed draws the random plans.
        options: fields of `EvaluationOptions`.

    Returns:
        The contents of the page.

    Raises:
        InputError: another number of plans, plans of other data or of different batch sizes, an
            output that cannot be used, or as `batchplan.quality.evaluate`.
        ResourceError: as `batchplan.quality.evaluate`.
        OutputError: writing failed; the message says what became of existing files.
    """
    check_report_output(output, png, atlas, force=force, inputs=inputs)
    if atlas is not None and len(plans) != 1:
        raise InputError(f"atlas: got {len(plans)} plans, expected one; make a report of each")
    runtime = Runtime.of(device, memory, seed, observer)
    settings = EvaluationOptions(**options)
    facts = RowFacts.read(embeddings, settings, runtime, groups, group_column)
    contents = gather(
        plans, embeddings, facts, settings, runtime,
        texts=texts, text_table=text_table, asked=rows,
    )  # fmt: skip
    with runtime.stage("draw"):
        files: dict[Path, bytes | Callable[[Any], object]] = {**draw(contents, output, png)}
    if atlas is not None:
        import pyarrow.parquet as pq

        pairs = unguarded_pairs(embeddings, settings.similarity, settings.temperature, runtime)
        (plan,) = plans.values()
        table = atlas_table(plan, embeddings, pairs, runtime, contents.columns, text_table)
        files[Path(atlas)] = lambda stream: pq.write_table(table, stream)
    for path in filter(os.path.lexists, files):  # a picture may be a folder, or a link to an input
        check_file(path, force, inputs)
    with runtime.stage("write"), nullcontext() if png is None else made_folder(Path(png)):
        write_files(files)
    return contents


def check_report_output(
    output: PathLike,
    png: PathLike | None,
    atlas: PathLike | None = None,
    *,
    force: bool,
    inputs: Sequence[PathLike],
) -> None:
    """Refuse paths at which a report, the folder of its pictures, or the table for embedding-atlas
    cannot be written.

    Raises:
        InputError: a suffix other than ``.html`` or ``.parquet``; a file or folder that cannot be
            used, or that exists without ``force``.
    """
    page = no_url(output)
    if page.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"{page}: a report is an HTML page; choose a name that ends in {_SUFFIXES[0]}"
        )
    check_file(page, force, inputs)
    if atlas is not None:
        if (table := no_url(atlas)).suffix.lower() != ".parquet":
            raise InputError(f"{table}: is read as Parquet; choose a name that ends in .parquet")
        check_file(table, force, inputs)
    if png is not None:  # other pictures are checked before they are written
        check_files(Path(png), ["losses.png"], force, inputs)


def draw(contents: ReportContents, output: PathLike, png: PathLike | None) -> dict[Path, bytes]:
    """Return the files of a report by path: the pictures if ``png`` is a folder, then the page."""
    with style():
        drawn = list(pictures(contents))
        text = page(contents, drawn).encode()
        images = {} if png is None else {picture.name: to_png(picture.figure) for picture in drawn}
    paths = {Path(png or "", f"{name}.png"): image for name, image in images.items()}
    return {**paths, Path(output): text}


def pictures(contents: ReportContents) -> list[Picture]:
    """Draw all pictures, in the order of the page."""
    drawn = [losses(contents), histogram(contents)]
    return [picture for picture in (*drawn, *similarity_pictures(contents)) if picture is not None]
