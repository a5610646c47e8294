"""The rows of a report: their hardest negatives, who is kept away, and how a reader gets there."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.plans import Batching, Plan
from batchplan.report import rows as module
from batchplan.report import write_report
from tests.browser import WINDOWS, show
from tests.dense import unit_sides

from .conftest import DIM, ROWS, SIZE
from .test_browser import TEXTS, luminance

MARGIN = 0.1


@pytest.fixture(scope="module")
def data():
    """Pairs of which three share a side: 0 and 1 the anchor, 2 and 3 the positive."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((12, DIM))
    x = centres[rng.integers(12, size=ROWS)] + 0.5 * rng.standard_normal((ROWS, DIM))
    y = x + 0.6 * rng.standard_normal((ROWS, DIM))
    x[1], y[3] = x[0], y[2]
    return Embeddings.from_arrays(x.astype(np.float32), y.astype(np.float32))


@pytest.fixture(scope="module")
def groups():
    return np.where(np.arange(ROWS) % 50 == 7, 5, -1)


@pytest.fixture(scope="module")
def plan():
    order = np.random.default_rng(5).permutation(ROWS)
    return Plan.cut(order, Batching(SIZE), num_rows=ROWS)


@pytest.fixture(scope="module")
def page(data, plan, groups, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    words = [f"word{row} " * 40 for row in range(ROWS)]
    pq.write_table(pa.table({"question": words, "answer": words}), folder / "texts.parquet")
    contents = write_report(
        {"plan.npy": plan}, data, folder / "page.html", relative_margin=MARGIN, random_trials=2,
        groups=groups, text_table=str(folder / "texts.parquet"), device="cpu",
    )  # fmt: skip
    return contents, folder / "page.html"


@pytest.mark.parametrize("referred", [False, True])
def test_rows_are_those_of_the_dense_matrix(page, data, plan, groups, referred, tmp_path):
    """A reference judges the limit; what is shown are similarities of the trained model."""
    contents, judge, reason = page[0], data, "reaches the limit"
    if referred:
        noise = np.random.default_rng(9).standard_normal((2, ROWS, DIM)).astype(np.float32)
        sides = [
            side.rows(0, ROWS) + noise for side, noise in zip((data.x, data.y), noise, strict=True)
        ]
        judge, reason = Embeddings.from_arrays(*sides), "reaches the limit of the reference"
        for name, side in zip(("x.npy", "y.npy"), sides, strict=True):
            np.save(tmp_path / name, side)
        contents = write_report(
            {"plan.npy": plan}, data, tmp_path / "page.html", relative_margin=MARGIN,
            random_trials=2, groups=groups, device="cpu", reference=[str(tmp_path / "x.npy")],
            reference_pair=[str(tmp_path / "y.npy")],
        )  # fmt: skip
    forth, judged = (x @ y.T for x, y in map(unit_sides, (data, judge)))
    similar, judged_similar = (np.maximum(one, one.T) for one in (forth, judged))
    own, ceiling = forth.diagonal(), judged.diagonal()
    ceiling = np.maximum(ceiling, np.sort(ceiling)[(ROWS - 1) // 2])
    ceiling = ceiling - MARGIN * abs(ceiling)
    limits = np.minimum(ceiling[:, None], ceiling[None])
    assert abs(judged_similar - limits).min() > 1e-6  # no pair is at its limit
    above = judged_similar >= limits
    known = np.zeros((ROWS, ROWS), bool)
    known[0, 1] = known[1, 0] = known[2, 3] = known[3, 2] = True
    grouped = (groups[:, None] == groups) & (groups >= 0)
    kept = above | known | grouped
    np.fill_diagonal(kept, False)
    batches = list(plan.batches())
    of_row = {int(row): number for number, rows in enumerate(batches) for row in rows}
    assert sorted(one.row for one in contents.rows) == list(range(ROWS))  # fewer than the most
    reasons = set()
    for one in contents.rows:
        assert one.batch == of_row[one.row]
        assert one.positive == pytest.approx(own[one.row], abs=1e-6)
        mates = np.array([row for row in batches[one.batch] if row != one.row])
        hardest = mates[np.argsort(-similar[one.row, mates])][:3]
        assert [other.row for other in one.negatives] == hardest.tolist()
        away = np.setdiff1d(np.flatnonzero(kept[one.row]), mates)
        away = away[np.argsort(-similar[one.row, away])][:3]
        assert [other.row for other in one.away] == away.tolist()
        for other in (*one.negatives, *one.away):
            pair = one.row, other.row
            assert other.similarity == pytest.approx(similar[pair], abs=1e-6)
            assert (reason in other.reason.split(", ")) == above[pair]
            assert ("known answer" in other.reason) == known[pair]
            assert ("same group" in other.reason) == grouped[pair]
            assert ("equal side" in other.reason) == known[pair]
            reasons |= {*other.reason.split(", ")}
    seldom = {"same group"} if referred else set()  # others are more similar
    assert reasons | seldom == {"", "known answer", "same group", "an equal side", reason}


def test_losses_choose_the_batches_of_a_large_plan(data, plan, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2 * SIZE)
    write = {"random_trials": 2, "device": "cpu", "relative_margin": MARGIN}
    usual = write_report({"plan.npy": plan}, data, tmp_path / "one.html", **write)
    batches = [one.batch for one in usual.rows]
    assert list(dict.fromkeys(batches)) == [pair.batch for pair in usual.plans[0].examples[:2]]
    assert len(batches) == 2 * SIZE
    asked = int(plan.rows[-1])
    made = write_report({"plan.npy": plan}, data, tmp_path / "two.html", rows=[asked], **write)
    assert made.rows[0].batch == plan.num_batches - 1
    assert asked in [one.row for one in made.rows]
    with pytest.raises(InputError, match=f"row: got {ROWS}, which no batch of the plan has"):
        write_report({"plan.npy": plan}, data, tmp_path / "three.html", rows=[ROWS], **write)
    plans = {"a": plan, "b": plan}
    with pytest.raises(InputError, match="row: got 2 plans, expected one"):
        write_report(plans, data, tmp_path / "three.html", rows=[1], **write)


def test_rows_that_repeat_are_shown_once(data, tmp_path):
    rows = np.r_[np.arange(SIZE), np.arange(SIZE)]
    plan = Plan.from_batches(rows, [0, SIZE, 2 * SIZE], Batching(SIZE), num_rows=ROWS)
    made = write_report(
        {"plan.npy": plan}, data, tmp_path / "one.html", random_trials=2, device="cpu"
    )
    assert sorted(one.row for one in made.rows) == list(range(SIZE))


def test_the_page_says_it(page):
    contents, path = page
    text = path.read_text()
    assert re.findall(r'<li id="row-(\d+)">', text) == [str(one.row) for one in contents.rows]
    assert "known answer, an equal side" in text
    assert max(map(len, re.findall(r"(?:word\d+ ?)+", text))) <= 280
    assert len(text) < 700_000


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_reader_gets_to_a_row(chromium, page, window):
    contents, path = page
    show(chromium, path.as_uri(), *window)
    opened = "return [...document.querySelectorAll('details')].filter(one => one.open).length"
    before = chromium.execute_script(opened)
    last = contents.rows[-1]
    chromium.get(f"{path.as_uri()}#row-{last.row}")  # as a link does, in the same page
    assert chromium.execute_script(opened) == before + 1
    place = f"document.getElementById('row-{last.row}').getBoundingClientRect()"
    assert chromium.execute_script(f"return {place}.width") > 200
    inner, top = chromium.execute_script(f"return [innerHeight, {place}.top]")
    assert 0 <= top < inner
    chromium.find_element("css selector", f"#row-{last.row} a").click()
    target = "return document.querySelector(':target').id"
    assert chromium.execute_script(target) == f"row-{last.negatives[0].row}"
    chromium.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")
    wide = chromium.execute_script("return document.documentElement.scrollWidth")
    assert wide <= window[0]
    for words, colour, background, size in chromium.execute_script(TEXTS):
        low, high = sorted((luminance(colour), luminance(background)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, words
        assert size >= 9.9, words


def test_known_answers_that_meet(data, plan, tmp_path):
    """The rows that meet the most, with their texts, beside the figure of random batches."""
    words = [f"word{row}" for row in range(ROWS)]
    anchors, documents = np.arange(ROWS) // 12, np.arange(ROWS)
    table = {"question": words, "answer": words, "q": anchors, "d": documents}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    rows = str(tmp_path / "rows.parquet")
    apart = Plan.cut(np.arange(ROWS).reshape(12, -1).T.ravel(), Batching(12), num_rows=ROWS)
    shuffled = Plan.cut(plan.rows, Batching(12), num_rows=ROWS)
    made = write_report(
        {"random.npy": shuffled, "apart.npy": apart}, data, tmp_path / "page.html", texts=[
            "question", "answer"], text_table=rows, label_table=rows, anchor_id="q",
        positive_id="d", random_trials=2, device="cpu",
    )  # fmt: skip
    # Equal vectors of rows 0 to 3 join no other anchors here.
    met = {
        int(row): [int(j) for j in batch if j != row and j // 12 == row // 12]
        for batch in shuffled.batches() for row in batch
    }  # fmt: skip
    worst, none = made.plans[0].answers, made.plans[1].answers
    assert none == []
    assert len(worst) == 4
    assert [one.negatives for one in worst] == sorted(map(len, met.values()))[:-5:-1]
    text = (tmp_path / "page.html").read_text()
    assert f"random.npy: {sum(map(len, met.values()))} of {ROWS * 11:,} (" in text
    assert f"apart.npy: 0 of {ROWS * 11:,} (" in text
    for one in worst:
        assert one.other in met[one.row]
        assert (
            f"Row {one.row} meets {one.negatives}, such as the positive of row {one.other}<" in text
        )
        assert f"<dd>word{one.row}</dd>" in text
        assert f"<dt>negative</dt><dd>word{one.other}</dd>" in text


def test_no_section_without_known_answers(single):
    assert "Known answers as negatives" not in single.read_text("utf-8")


def test_a_known_answer_among_mined_negatives(tmp_path):
    """The text is that of the document that is the answer, not of the other row's positive."""
    rng = np.random.default_rng(0)
    x, y, mined = (rng.standard_normal((32, DIM)).astype(np.float32) for _ in range(3))
    mined[9] = y[4]
    words = {side: [f"{side}{row}" for row in range(32)] for side in ("q", "a", "n")}
    pq.write_table(pa.table(words), tmp_path / "texts.parquet")
    write_report(
        {"plan.npy": Plan.cut(np.arange(32), Batching(16), num_rows=32)},
        Embeddings.from_arrays(x, y, negatives=[mined]), tmp_path / "page.html", texts=[*"qan"],
        text_table=str(tmp_path / "texts.parquet"), random_trials=2, device="cpu",
    )  # fmt: skip
    text = (tmp_path / "page.html").read_text()
    assert "Row 4 meets 1, such as mined negative 1 of row 9<" in text
    assert "<dt>negative</dt><dd>n9</dd>" in text


def test_a_mined_negative_keeps_rows_apart(tmp_path):
    rng = np.random.default_rng(0)
    x, y, mined = (rng.standard_normal((32, DIM)).astype(np.float32) for _ in range(3))
    mined[20] = y[4]
    made = write_report(
        {"plan.npy": Plan.cut(np.arange(32), Batching(16), num_rows=32)},
        Embeddings.from_arrays(x, y, negatives=[mined]), tmp_path / "page.html", guard=False,
        random_trials=2, device="cpu",
    )  # fmt: skip
    away = {one.row: [(other.row, other.reason) for other in one.away] for one in made.rows}
    assert {row: others for row, others in away.items() if others} == {
        4: [(20, "known answer")], 20: [(4, "known answer")]
    }  # fmt: skip
