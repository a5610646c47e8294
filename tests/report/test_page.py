"""The page as a parser reads it."""

import base64
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from batchplan.data import load_embeddings
from batchplan.data.ids import ids_digest
from batchplan.data.texts import likely_columns, load_texts
from batchplan.errors import InputError
from batchplan.expectation import forecast
from batchplan.plans import Batching, Plan
from batchplan.quality import verdict_on
from batchplan.quality.metrics import METRICS, percent
from batchplan.quality.pairs import unguarded_pairs
from batchplan.report import write_report
from batchplan.report.contents import batch_losses
from batchplan.report.palette import COLOURS, DARK
from batchplan.runtime import Runtime
from tests.dense import unit_sides

from .conftest import ROWS, SIZE

TEXT = "{http://www.w3.org/2000/svg}text"
VOID = {"meta", "link", "br", "img"}
PICTURES = [
    "losses", "histogram",
    *(f"similarity-{name}" for name in ("original", "random", 1, 2, 3)),
]  # fmt: skip


class Reader(HTMLParser):
    """Elements with their attributes, and the text; every element must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self._open):
            self.texts.append(data.strip())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(made):
    return Reader(made.text)


def test_it_says_what_plans_of_similar_data_gained(page, embeddings):
    x, y = unit_sides(embeddings)
    scores = x @ y.T
    beaten = (scores > scores.diagonal()[:, None]).sum() / (ROWS * (ROWS - 1))
    place = page.texts.index("plans of similar data gained")
    assert forecast(beaten, SIZE) in page.texts[place : place + 4]


def svgs(text):
    found = re.findall(r'src="data:image/svg\+xml;base64,(.*?)"', text)
    return [ElementTree.fromstring(base64.b64decode(one)) for one in found]


def contrast(one, other):
    """WCAG's contrast of two colours."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_head(page):
    assert page.all("html") == [{"lang": "en"}]
    metas = page.all("meta")
    assert metas[0] == {"charset": "utf-8"}
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in metas
    assert any(one.get("name") == "viewport" for one in metas)
    assert "What 3 plans do to the batches" in page.texts
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) == len(PICTURES)


def test_nothing_is_run_or_fetched(page, made):
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "form", "b", "i", "u", "base"}
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("href", "src", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)|https?://", made.text)


def test_what_users_named_is_shown_as_they_wrote_it(page):
    shown = "\n".join(page.texts)
    for text in ("<script>alert(1)</script> & $x$ similar.npy", "<b>bold</b>"):
        assert text in shown
    assert "options: </dd><script>" in page.texts


def test_every_picture_is_there_once_with_a_title_a_caption_and_a_label(page, made):
    assert [one["id"] for one in page.all("figure")] == PICTURES
    found = svgs(made.text)
    assert len(found) == len(PICTURES)
    for one, image in zip(found, page.all("img"), strict=True):
        assert len(image["alt"]) > 20
        assert one.attrib["viewBox"].startswith("0 0 340 ")
        assert all(element.text for element in one.iter(TEXT))  # text as text
    for name in PICTURES:
        figure = made.text.partition(f'<figure id="{name}">')[2].partition("</figure>")[0]
        assert re.match(r"\s*<h3>.+</h3>\s*<p class=\"what\">.+</p>", figure)


def test_pictures_have_no_colour_but_those_of_the_page(made):
    for one in svgs(made.text):
        for element in one.iter():
            style = element.attrib.get("style", "")
            for colour in re.findall(r"#[0-9a-fA-F]{6}", style):
                # A plain black that matplotlib gives to shapes that show no colour of their own.
                assert colour == "#000000", style
            assert {*re.findall(r"var\(--([^)]*)\)", style)} <= COLOURS.keys()
            if element.tag == TEXT:
                assert "fill: var(--ink)" in style, style


def test_numbers_are_those_of_the_evaluations(made):
    rows = {}
    for row in re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", made.text):
        rows[row[0].partition("<small>")[0]] = re.findall(r"<td>(.*?)</td>", row[1])
    found = [one.evaluation for one in made.contents.plans]
    assert rows["loss"] == [f"{one.loss_train:.4f}" for one in found]
    assert rows["loss, oracle"] == [f"{one.loss_oracle:.4f}" for one in found]
    reduced = [f"{one.gap_reduction:z.1%}" for one in found]
    assert rows["gap reduction, all pairs"] == [
        f"{one} of the gap of random batches" for one in reduced
    ]
    assert [one.rpartition(", ")[2] for one in rows["hard negatives in batch"]] == [
        f"{one.hard_negative_recall['10']:.1%} of the 10 hardest" for one in found
    ]
    guard = found[1].guard
    assert rows["pairs that break the guard"][1].startswith(
        f"{guard.broken:,} of {guard.pairs:,} ({percent(guard.false_negatives)}, "
    )
    once = "0 repeats, none more than 1 times"
    assert rows["rows in the plan"] == [f"144 (100.0%), {once}"] * 2 + [f"64 (44.4%), {once}"]
    assert rows["each row once"] == ["yes", "yes", "no"]
    for metric in METRICS.values():
        mined = metric.name.startswith("guard.mined.")  # the data are pairs
        if metric.label and not mined:
            assert len(rows[metric.label]) == 3, metric.name
    numbers = re.findall(r'<span class="number">(.*?)</span>', made.text)
    verdicts = [verdict_on(one) for one in found]
    assert numbers == [aspect.figure for one in verdicts for aspect in one.aspects if aspect.figure]
    for one in found:  # hardness and false negatives, side by side
        assert f"{one.guard.hardness:z.1%}" in numbers
        assert percent(one.guard.false_negatives) in numbers


def test_the_verdict_comes_first(made, page):
    contents = made.contents
    sentence = contents.choice.sentence
    shown = [text for text in page.texts if text]
    assert f"{sentence[0].upper()}{sentence[1:]}." in shown[:8]
    plans = made.text.index('class="plans grid thirds"')
    assert made.text.index('class="verdict"') < plans < made.text.index("<figure")
    for plan in contents.plans:
        for warning in plan.verdict.warnings:
            assert any(text == warning for text in shown)
    assert any("relative margin 0.1" in text for text in shown[:8])


def test_pairs_of_the_hardest_batches(made, embeddings):
    unit = unit_sides(embeddings)
    pairs = unguarded_pairs(embeddings, "cosine", 0.05, Runtime())
    for one in made.contents.plans:
        batches = list(one.plan.batches())
        losses = batch_losses(pairs, one.plan.rows, one.plan.batch_offsets)
        hardest = np.argsort(-losses, kind="stable")[:4]
        assert [pair.batch for pair in one.examples] == hardest.tolist()
        for pair in one.examples:
            batch = batches[pair.batch]
            similar = unit[0][batch] @ unit[1][batch].T
            assert pair.positive == pytest.approx(unit[0][pair.row] @ unit[1][pair.row], abs=1e-6)
            np.fill_diagonal(similar, -1)
            assert pair.similarity == pytest.approx(similar.max(), abs=1e-6)
            assert pair.row != pair.negative
            said = f"Row {pair.row} and negative {pair.negative} (batch {pair.batch + 1})"
            assert said in made.text


def test_texts_are_shown_as_they_are_but_clean(embeddings, plans, tmp_path):
    texts = [f"<script>{row}</script>\x1b[31m\n one" for row in range(ROWS)]
    table = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"question": texts, "long": ["word " * 99] * ROWS}), table)
    made = write_report(
        {"random.npy": plans["random.npy"]}, embeddings, tmp_path / "one.html",
        random_trials=2, device="cpu", texts=["question", "long"],
        text_table=str(table),
    )  # fmt: skip
    page = Reader((tmp_path / "one.html").read_text("utf-8"))
    for pair in made.plans[0].examples:
        assert f"<script>{pair.row}</script>\\x1b[31m one" in page.texts
    assert max(len(text) for text in page.texts if text.startswith("word word")) == 281
    assert any("Texts are from question, long" in text for text in page.texts)
    for columns, part in ((["none"], "there is no such column"), (["vector"], "expected strings")):
        pq.write_table(pa.table({"vector": [[1.0]] * ROWS}), table)
        with pytest.raises(InputError, match=part):
            write_report(
                plans, embeddings, tmp_path / "two.html", random_trials=2, device="cpu",
                texts=columns, text_table=str(table),
            )  # fmt: skip


def test_texts_of_other_rows_than_were_planned_are_refused(embeddings, plans, tmp_path):
    """Also if the data has no ids; the page would show the texts of other rows."""
    table, rows = tmp_path / "texts.parquet", np.arange(ROWS)
    metadata = replace(plans["random.npy"].metadata, ids_digest=ids_digest(pa.array(rows)))
    planned = replace(plans["random.npy"], metadata=metadata)

    def report_with(order):
        texts = [f"question {row}" for row in order]
        pq.write_table(pa.table({"id": order, "question": texts}), table)
        return write_report(
            {"one": planned}, embeddings, tmp_path / "one.html", random_trials=2, device="cpu",
            text_table=str(table),
        )  # fmt: skip

    with pytest.raises(InputError, match=r"texts.parquet: got other ids than were planned"):
        report_with(rows[::-1])
    assert report_with(rows).columns == ["question"]


TEXTS = {
    "two columns": ({"topic": "t", "question": "q", "answer": "a"}, None, ["question", "answer"]),
    "known names": ({"title": "t", "positive": "p", "anchor": "a"}, None, ["anchor", "positive"]),
    "not mined": ({"negative": "n", "q": "q", "a": "a"}, None, ["q", "a"]),
    "one column": ({"caption": "c", "id": "i", "url": "u"}, None, ["caption"]),
    "ids": (dict.fromkeys(["_id", "qid", "q", "docId", "paid", "d_id"], "t"), None, ["q", "paid"]),
    "none": ({"id": "i"}, None, []),
    "a side each": ({"text": "x"}, {"source": "s", "text": "y"}, ["text", "text"]),
    "both in x": ({"topic": "t", "q": "q", "a": "a"}, {}, ["q", "a"]),
    "both in each": (*[{"positive": "p", "anchor": "a"}] * 2, ["anchor", "positive"]),
    "all in each": (*[{"q": "q", "a": "a"}] * 2, ["q", "a"]),
    "all in each, renamed": (
        {"q": "q", "a": "a"},
        {"question": "q", "answer": "a"},
        ["q", "answer"],
    ),
    "both in y": ({"topic": "t"}, {"positive": "p", "anchor": "a"}, ["anchor", "positive"]),
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts_are_found(case, embeddings, plans, tmp_path):
    x, y, columns = TEXTS[case]
    sides = [side.rows(0, ROWS) for side in (embeddings.x, embeddings.y)]

    def table(path, texts, *vectors):
        names = {name: [f"{text}{row}" for row in range(ROWS)] for name, text in texts.items()}
        lists = {f"v{number}": list(one) for number, one in enumerate(vectors)}
        pq.write_table(pa.table({**names, **lists}), path)
        return path

    files = [table(tmp_path / "x.parquet", x, *(sides if y is None else sides[:1]))]
    if y is not None:
        files.append(table(tmp_path / "y.parquet", y, sides[1]))
    made = write_report(
        {"random.npy": plans["random.npy"]}, load_embeddings(*files), tmp_path / "one.html",
        random_trials=2, device="cpu", group_column="topic",
    )  # fmt: skip
    assert made.columns == columns
    page = Reader((tmp_path / "one.html").read_text("utf-8"))
    y = y or {}
    for pair in made.plans[0].examples if columns else ():
        assert f"{({**y, **x})[columns[0]]}{pair.row}" in page.texts
        assert f"{({**x, **y})[columns[:2][-1]]}{pair.negative}" in page.texts
    assert any("Texts are from" in text for text in page.texts) == bool(columns)


@pytest.mark.parametrize("side", [0, 1])
def test_texts_of_one_side_are_not_shown_as_those_of_the_other(side, embeddings, plans, tmp_path):
    files = [tmp_path / "x.npy", tmp_path / "y.npy"]
    vectors = [one.rows(0, ROWS) for one in (embeddings.x, embeddings.y)]
    np.save(files[1 - side], vectors[1 - side])
    files[side] = tmp_path / "texts.parquet"
    texts = [f"text {row}" for row in range(ROWS)]
    pq.write_table(pa.table({"text": texts, "v": list(vectors[side])}), files[side])
    made = write_report(
        {"random.npy": plans["random.npy"]}, load_embeddings(*files), tmp_path / "one.html",
        random_trials=2, device="cpu", atlas=tmp_path / "atlas.parquet",
    )  # fmt: skip
    assert made.columns == ["", "text"][:: 1 if side else -1]
    row = made.plans[0].examples[0].row
    assert [made.text(one, row) for one in (0, 1)] == [
        f"text {row}" * (one == side) for one in (0, 1)
    ]
    assert "Texts are from text;" in (tmp_path / "one.html").read_text("utf-8")
    names = pq.read_schema(tmp_path / "atlas.parquet").names
    assert [one for one in names if "text" in one] == [["text"], ["positive_text"]][side]


def test_texts_follow_the_names_of_vectors(embeddings, tmp_path):
    """x may be the second text, by the order of the vectors or by option."""
    path, sides = tmp_path / "both.parquet", (embeddings.x, embeddings.y)
    for names in (("passage_vector", "query_vector"), ("query_vector", "passage_vector")):
        vectors = {name: [*side.rows(0, ROWS)] for name, side in zip(names, sides, strict=True)}
        texts = dict.fromkeys(("query", "passage"), ["t"] * ROWS)
        pq.write_table(pa.table({**texts, **vectors}), path)
        expected = [name.removesuffix("_vector") for name in names]
        assert likely_columns(load_embeddings(path)) == expected
        other = load_embeddings(path, x_column=names[1])
        assert likely_columns(other) == expected[::-1]


def test_groups_by_an_anchor_or_a_positive_leave_it_a_text(embeddings, tmp_path):
    names = {"positive": ["p"] * ROWS, "anchor": ["a"] * ROWS, "group": ["g"] * ROWS}
    pq.write_table(pa.table(names), tmp_path / "texts.parquet")
    found = likely_columns(embeddings, tmp_path / "texts.parquet", ["positive"])
    assert found == ["anchor", "positive"]


def test_dictionaries_are_texts_where_strings_do_not_suffice(embeddings, tmp_path):
    """Tools write repeated texts as dictionaries; but categories are dictionaries, too."""
    table, rows = tmp_path / "texts.parquet", np.arange(ROWS)

    def found(**columns):
        texts = {
            name: pa.array([f"{name}{row}" for row in rows]).cast(
                pa.dictionary(pa.int32(), pa.string()) if kind == "d" else pa.string()
            )
            for name, kind in columns.items()
        }
        pq.write_table(pa.table(texts), table)
        names = likely_columns(embeddings, table)
        for name in names:
            assert load_texts(name, embeddings, rows[:2], table) == {0: f"{name}0", 1: f"{name}1"}
        return names

    for columns in ({"q": "d", "a": "s"}, {"q": "d", "a": "d"}, {"q": "s", "a": "d"}):
        assert found(**columns) == ["q", "a"]
    assert found(kind="d", q="s", a="s") == ["q", "a"]
    assert found(title="s", body="s", anchor="d", positive="d") == ["anchor", "positive"]


def test_tiny_shares_are_not_zero():
    assert [percent(one) for one in (None, 0.0, 4.2e-5, 5e-5, 0.1234, 1.0)] == [
        "undefined", "0%", "0.0042%", "0.005%", "12.3%", "100%",
    ]  # fmt: skip


@pytest.mark.parametrize("colours", [COLOURS, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_the_card(colours):
    for name in ("ink", "muted"):
        assert contrast(colours[name], colours["card"]) >= 4.5, name
    for name, colour in colours.items():
        if name.startswith("plan-") or name == "random":
            assert contrast(colour, colours["card"]) >= 3, name
    assert colours.keys() == COLOURS.keys()
    assert len(set(colours.values())) == len(colours)


def test_the_same_report_has_the_same_bytes_whatever_the_settings(
    made, plans, embeddings, tmp_path
):
    before = matplotlib.rcParams.copy()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):
        write_report(
            plans, embeddings, tmp_path / "again.html",
            relative_margin=0.1, random_trials=4, seed=2, png=tmp_path / "png",
        )  # fmt: skip
    assert (tmp_path / "again.html").read_bytes() == made.path.read_bytes()
    for name in PICTURES:
        first, second = (folder / f"{name}.png" for folder in (made.png, tmp_path / "png"))
        assert first.read_bytes() == second.read_bytes()
    # Not the backend: to look at it makes matplotlib choose one.
    after = matplotlib.rcParams.copy()
    assert all(after[name] == before[name] for name in before if name != "backend")


def test_pictures_are_png_files(made):
    assert sorted(path.stem for path in made.png.iterdir()) == sorted(PICTURES)
    for path in made.png.iterdir():
        with Image.open(path) as image:
            image.load()
            assert image.format == "PNG"
            assert len(np.unique(np.asarray(image.convert("L")))) > 20


def test_what_is_not_known_is_not_shown(embeddings, tmp_path):
    """A plan of one row a batch has no negatives; nothing says which are false."""
    plan = Plan.from_batches(np.arange(ROWS), np.arange(ROWS + 1), Batching(SIZE), num_rows=ROWS)
    write_report(
        {"single.npy": plan}, embeddings, tmp_path / "one.html", random_trials=2, device="cpu"
    )
    page = Reader((tmp_path / "one.html").read_text("utf-8"))
    drawn = {one["id"] for one in page.all("figure")}
    assert "histogram" not in drawn
    assert {"losses", "similarity-1"} <= drawn
    shown = " ".join(page.texts)
    assert "Side by side" not in shown
    assert "--text-columns" in page.texts
    assert "What a plan does to the batches" in page.texts
    assert "planner unknown" in page.texts
