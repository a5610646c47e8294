"""A report of three plans, made once."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.data import load_embeddings
from batchplan.plans import Batching, Plan
from batchplan.report import write_report
from tests.browser import chromium as chromium

ROWS, DIM, SIZE = 144, 12, 16


@pytest.fixture(scope="session")
def embeddings(tmp_path_factory):
    """Pairs in twelve clusters, in random order."""
    rng = np.random.default_rng(3)
    centres = rng.standard_normal((12, DIM))
    x = centres[rng.integers(12, size=ROWS)] + 0.6 * rng.standard_normal((ROWS, DIM))
    y = x + 0.7 * rng.standard_normal((ROWS, DIM))
    folder = tmp_path_factory.mktemp("data")
    for name, side in (("x", x), ("y", y)):
        np.save(folder / f"{name}.npy", side.astype(np.float32))
    return load_embeddings(folder / "x.npy", folder / "y.npy")


@pytest.fixture(scope="session")
def plans(embeddings):
    """A random plan, one of similar rows, and one of a part of the rows, by hostile names."""
    x = np.asarray(embeddings.x.rows(0, ROWS))
    named = {"planner": "<b>bold</b>", "options": {"</dd><script>": "\"'&\n"}}
    by_first = np.lexsort((x[:, 1], x[:, 0].round()))
    part = np.arange(4 * SIZE) * 2
    return {
        "random.npy": Plan.cut(
            np.random.default_rng(1).permutation(ROWS), Batching(SIZE), num_rows=ROWS
        ),
        "<script>alert(1)</script> & $x$ similar.npy": Plan.cut(
            by_first, Batching(SIZE), num_rows=ROWS, **named
        ),
        "part.npy": Plan.from_batches(part, np.arange(5) * SIZE, Batching(SIZE), num_rows=ROWS),
    }


@pytest.fixture(scope="session")
def made(embeddings, plans, tmp_path_factory):
    """path, text and contents of the report, and the folder of its pictures."""
    folder = tmp_path_factory.mktemp("report")
    contents = write_report(
        plans, embeddings, folder / "report.html",
        relative_margin=0.1, random_trials=4, seed=2, png=folder / "png",
    )  # fmt: skip
    return SimpleNamespace(
        path=folder / "report.html",
        text=(folder / "report.html").read_text("utf-8"),
        png=folder / "png",
        contents=contents,
    )


@pytest.fixture(scope="session")
def single(embeddings, plans, tmp_path_factory):
    """path of the report of one plan, whose rows have texts."""
    folder = tmp_path_factory.mktemp("single")
    words = [f"the text of row {row}, " * 9 for row in range(ROWS)]
    pq.write_table(pa.table({"question": words, "answer": words}), folder / "texts.parquet")
    write_report(
        {"random.npy": plans["random.npy"]}, embeddings, folder / "report.html",
        relative_margin=0.1, random_trials=4, seed=2,
        text_table=str(folder / "texts.parquet"),
    )  # fmt: skip
    return folder / "report.html"
