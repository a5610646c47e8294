"""The bench of real encoders, less the training: splits, the order of runs, and the table."""

import argparse
import csv
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("datasets")  # of the environment of frameworks

from datasets import Dataset
from scipy import stats
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.benchmarks.finetune import __main__ as command
from tests.benchmarks.finetune import domains, neighbours, runs, table
from tests.benchmarks.finetune.lines import RATE_ROWS, RATES


@pytest.fixture
def pairs(monkeypatch):
    monkeypatch.setattr(domains, "TEST", 60)
    monkeypatch.setattr(domains, "VALIDATION", 20)
    rng = np.random.default_rng(0)
    source = rng.integers(0, 40, 600)
    source[:150] = 40  # too large to be held out
    anchors = [f"query {value}" for value in rng.integers(0, 300, 600)]
    return pa.table({"anchor": anchors, "positive": [f"document {row}" for row in range(600)],
                     "source": [f"source {one}" for one in source]})  # fmt: skip


def test_no_source_is_in_two_parts_and_held_out_texts_are_unique(pairs):
    split = domains.split(pairs, 10_000)
    source = dict(zip(pairs["positive"].to_pylist(), pairs["source"].to_pylist(), strict=True))
    parts = [split.train, split.validation, split.test]
    of_parts = [{source[text] for text in part["positive"].to_pylist()} for part in parts]
    assert sum(map(len, of_parts)) == len(set.union(*of_parts))
    assert "source 40" in of_parts[0]
    assert [part.num_rows for part in parts[1:]] == [20, 60]
    for part in parts[1:]:
        for name in domains.COLUMNS:
            assert len(set(part[name].to_pylist())) == part.num_rows
    few = domains.split(pairs, 50)
    assert few.train.equals(split.train.slice(0, 50))
    assert few.test.equals(split.test)


def test_pairs_of_ones_own(pairs, tmp_path):
    path = str(tmp_path / "own.parquet")
    pq.write_table(pairs, path)
    assert domains.load(path, 100).train.num_rows == 100


def test_scns_draws_another_document_for_each_row():
    texts = [f"word {row // 2}" for row in range(240)]  # each document belongs to two rows
    names = {name: row for row, name in enumerate(["word", *map(str, range(120))])}
    tokenizer = Tokenizer(WordLevel(names))
    tokenizer.pre_tokenizer = Whitespace()
    vectors = np.random.default_rng(0).standard_normal((len(names), 8), np.float32)
    encoder = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)])
    data = Dataset.from_dict({"anchor": texts, "positive": texts})
    drawn, again, other = (runs.drawn(data, encoder, seed)["negative"] for seed in (0, 0, 1))
    assert set(drawn) <= set(texts)
    assert all(negative != own for negative, own in zip(drawn, texts, strict=True))
    assert list(drawn) == list(again) != list(other)


def stages(results, line="shuffled", **more):
    options = argparse.Namespace(
        **{"model": "minilm", "rates": None, "rows": 10_240, "seeds": [0, 1], "epochs": 1, **more}
    )
    return command._stages(results, options, line, "gloss")


def done(results, stages, score):
    """The runs of all stages, each of which then has a result."""
    for run in chain.from_iterable(stages):
        if command._key(run) not in results.runs:
            point = {"epoch": 1, "seconds": 2.0, "ndcg@10": score(run["rate"])}
            results.add({**run, "test": [point], "validation": [point]})
        yield run


def test_the_rate_with_the_best_validation_is_taken(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    runs = list(done(results, stages(results), lambda rate: -abs(rate - 1e-4)))
    assert [run["rate"] for run in runs] == [*RATES, 1e-4, 1e-4]
    assert [run["rows"] for run in runs] == [RATE_ROWS] * 4 + [10_240] * 2
    assert [run["seed"] for run in runs] == [0, 0, 0, 0, 0, 1]


def test_the_rate_is_chosen_in_as_many_epochs_and_lent_to_lines_like_it(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    runs = list(done(results, stages(results, "gcbs", epochs=2.2), best))
    assert [run["epochs"] for run in runs] == [2, 2, 2, 2, 2.2, 2.2]
    assert [run["line"] for run in runs] == ["planned-later"] * 4 + ["gcbs"] * 2
    assert [run["rate"] for run in runs[4:]] == [2e-4, 2e-4]


@pytest.mark.parametrize(
    ("best", "more"), [(1.6e-3, [8e-4, 1.6e-3, 3.2e-3]), (2.5e-5, [2.5e-5, 1.25e-5])]
)
def test_rates_beyond_are_tried_while_the_last_is_the_best(tmp_path, best, more):
    results = command.Results(tmp_path / "runs.jsonl")
    runs = list(done(results, stages(results), lambda rate: -abs(rate - best)))
    assert [run["rate"] for run in runs] == [*RATES, *more, best, best]


def test_a_stopped_run_goes_on(tmp_path):
    path = tmp_path / "runs.jsonl"
    whole = command.Results(tmp_path / "whole.jsonl")
    expected = list(done(whole, stages(whole), best))
    first = command.Results(path)
    stopped = done(first, stages(first), best)
    assert [next(stopped) for _ in range(3)] == expected[:3]
    again = command.Results(path)
    assert list(done(again, stages(again), best)) == expected
    assert path.read_text() == whole.path.read_text()


def test_runs_of_a_stage_start_together_and_a_run_of_two_lines_once(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    lines = [command.Chain(stages(results, line)) for line in ("planned-later", "gcbs")]
    first = [lines[0].startable(results, set())]
    keys = {command._key(first[0])}
    first.append(lines[0].startable(results, keys))
    assert [run["rate"] for run in first] == list(RATES[:2])
    keys = {command._key({**first[0], "rate": rate}) for rate in RATES}
    assert lines[0].startable(results, keys) is None
    assert lines[1].startable(results, keys) is None  # all that it waits for run
    list(done(results, [[{**first[0], "rate": rate} for rate in RATES]], best))
    for line, name in zip(lines, ("planned-later", "gcbs"), strict=True):
        run = line.startable(results, set())
        assert (run["line"], run["rate"], run["seed"]) == (name, 2e-4, 0)
    lines[1].end()
    assert lines[1].startable(results, set()) is None


def best(rate):
    """The score of a rate."""
    return -abs(rate - 2e-4)


def test_large_batches_choose_by_all_rows(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    runs = list(done(results, stages(results, "cached-1024"), lambda rate: -abs(rate - 4e-4)))
    assert {run["rows"] for run in runs} == {10_240}
    assert runs[0]["rate"] == pytest.approx(2e-4)


def test_intervals_are_those_of_student():
    differences = [0.5, 1.1, 0.8]
    mean, half = table.interval(differences)
    low, high = stats.ttest_1samp(differences, 0).confidence_interval()
    assert (mean - half, mean + half) == pytest.approx((low, high))


def point(score, seconds):
    return {"epoch": 1, "seconds": seconds, "ndcg@10": score, "mrr@10": 40.0, "recall@10": 70.0}


def add(results, line, scores, seconds, step=0.1, **more):
    """A run of each seed, on a machine that takes `step` seconds for a step of reference."""
    for seed, score in enumerate(scores):
        key = {"domain": "gloss", "model": "minilm", "line": line, "rate": 1e-4, "seed": seed,
               "rows": 10_240, "epochs": 1, **more}  # fmt: skip
        end = [point(score, seconds)]
        results.add({**key, "test": end, "validation": [] if seed else end, "step": step})


def shown(text):
    """The lines of a table, with ASCII signs."""
    return text.replace("\N{MINUS SIGN}", "-").splitlines()


def test_the_table_pairs_runs_by_seed(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    add(results, "untrained", (30.0, 30.0, 30.0), 0.0)
    add(results, "shuffled", (50.0, 52.0, 54.0), 10.0)
    add(results, "shuffled", (51.0,), 13.0, epochs=1.3)
    add(results, "planned-half", (51.0, 53.1, 55.2), 25.0, step=0.2)  # half as fast a machine
    add(results, "shuffled", (99.0,), 1.0, rows=2560)
    add(results, "shuffled", (52.0, 52.0, 52.0), 20.0, epochs=2)
    add(results, "planned-later", (54.0, 54.0), 19.0, epochs=2)
    add(results, "gcbs", (53.0, 53.1, 53.2), 21.0, epochs=2)
    found = table.runs(results.path)
    lines = shown(table.markdown(found, 1))
    assert lines[0] == "| Batches | Gloss | Over shuffled | Over planned | Time |"
    one, few = " (1)", " (2)"
    assert lines[2:] == [
        "| before training | 30.00 |  |  |  |",
        "| shuffled | 52.00 |  | -1.10 ± 0.25 | 1.00 |",
        f"| shuffled, 1.3 epochs | 51.00 | +1.00{one} | +0.00{one} | 1.30 |",
        "| **planned** (the default) | 53.10 | +1.10 ± 0.25 |  | 1.25 |",
    ]
    assert shown(table.markdown(found, 2))[2:] == [
        f"| shuffled | 52.00 |  | -2.00 ± 0.00{few} | 2.00 |",
        f"| **planned** (the default) | 54.00 | +2.00 ± 0.00{few} |  | 1.90 |",
        f"| `gcbs` | 53.10 | +1.10 ± 0.25 | -0.95 ± 0.64{few} | 2.10 |",
    ]
    assert shown(table.everything(found, 1)) == [
        "| Batches | Gloss |",
        "| --- | --- |",
        "| before training (nDCG@10) | 30.00 |",
        "| shuffled (nDCG@10) | 52.00 |",
        f"| shuffled, 1.3 epochs | +1.00{one} |",
        "| **planned** (the default) | +1.10 ± 0.25 |",
    ]
    rows = {(row["line"], row["epochs"]): row
            for row in csv.DictReader(table.figures(found).splitlines())}  # fmt: skip
    assert len(rows) == 7
    gcbs, longer = rows["gcbs", "2"], rows["shuffled", "1.3"]
    names = "over", "interval", "seeds"
    assert [gcbs[f"{name}_shuffled"] for name in names] == ["1.10", "0.25", "3"]
    assert [gcbs[f"{name}_planned"] for name in names] == ["-0.95", "0.64", "2"]
    assert [gcbs[name] for name in ("ndcg@10", "rate", "seeds", "time")] == [
        "53.10", "0.0001", "3", "2.10"
    ]  # fmt: skip
    assert (longer["interval_shuffled"], longer["time"]) == ("", "1.30")


def test_runs_of_another_dtype_are_not_compared(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    add(results, "shuffled", (50.0, 52.0, 54.0), 10.0)
    add(results, "planned-half", (51.0, 53.1, 55.2), 25.0)
    found = table.runs(results.path)
    for run in found:
        run["dtype"] = "float32" if run["line"] == "shuffled" or run["seed"] == 2 else "bfloat16"
    both = [table.final(found, "gloss", name) for name in ("planned-half", "shuffled")]
    assert table.differences(*both) == pytest.approx([1.2])


def test_lines_are_compared_by_the_seeds_that_both_have_run_with(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    add(results, "shuffled", (50.0, 52.0, 54.0), 20.0, epochs=2)
    add(results, "gist", (40.0, 40.0, 40.0), 20.0, epochs=2)
    add(results, "b3", (53.0, 54.0, 55.0, 59.0), 20.0, epochs=2)
    add(results, "planned-later", (54.0, 54.0, 54.0, 54.0, 99.0), 19.0, epochs=2)
    add(results, "planned-later", (1.0, 1.0, 1.0, 1.0), 19.0, epochs=2, model="weak")
    found = table.runs(results.path)
    assert shown(table.versus(found, "planned-later"))[2:] == [
        "| shuffled | +2.00 ± 4.97 |",
        "| `b3` | -1.25 ± 4.18 (4) |",
    ]
    assert (
        "| `b3` | 55.25 | +2.00 ± 2.48 | +1.25 ± 4.18 (4) |" in shown(table.markdown(found, 2))[4]
    )


def test_a_planner_of_a_paper_that_ran_on_one_domain_is_not_shown_with_all_lines(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    for domain in ("translation", "gloss"):
        add(results, "shuffled", (50.0,), 20.0, epochs=2, domain=domain)
        add(results, "b3", (52.0,), 20.0, epochs=2, domain=domain)
    add(results, "bcs", (51.0,), 20.0, epochs=2, domain="translation")
    found = table.runs(results.path)
    assert shown(table.everything(found, 2))[3:] == ["| `b3` | +2.00 (1) | +2.00 (1) |"]
    assert [line for line in shown(table.papers(found)) if "bcs" in line]
    assert "bcs" in table.figures(found)


def test_levers_are_compared_with_the_recipe_of_their_domain(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    add(results, "shuffled", (50.0, 50.0, 50.0), 10.0, domain="translation")
    add(results, "hardness", (51.0, 51.0, 51.0), 10.0, domain="translation")
    add(results, "half-hardness-4", (52.0, 53.0, 54.0), 10.2, domain="translation")
    add(results, "half-hardness", (60.0, 60.0, 60.0), 10.2)
    add(results, "half-hardness-4", (90.0, 90.0, 90.0), 10.2)  # not the recipe of glosses
    add(results, "hard-last", (52.5, 53.5, 54.5), 10.4, domain="translation")
    add(results, "hard-last", (59.0,), 10.4)
    add(results, "whole-layer-1", (50.0,), 10.5, domain="translation")
    add(results, "half-distilled", (52.0,), 10.5, domain="translation")
    shares = [
        {"domain": domain, "vectors": kind, "before": 0.9, "after": after}
        for domain, kind, after in (
            ("translation", "layer-1", 0.123), ("gloss", "layer-1", 0.5),
            ("translation", "predicted by table", 0.31), ("code", "predicted by distilled", 0.4),
        )
    ]  # fmt: skip
    found = table.runs(results.path)
    assert shown(table.levers(found, shares)) == [
        "| Lever | Translation | Gloss | Time | Neighbours found |",
        "| --- | --- | --- | --- | --- |",
        "| shuffled, `hardness_mode` | -2.00 ± 2.48 |  | 1.00 |  |",
        "| **planned**, `hardness_mode` |  |  | 1.02 | 31% |",
        "| predicted from a distilled table | +0.00 (1) |  | 1.05 | 40% |",
        "| hard batches last | +0.50 ± 0.00 | -1.00 (1) | 1.04 |  |",
        "| the first layer | -2.00 (1) |  | 1.05 | 12%, 50% |",
    ]
    assert "hard batches last" not in table.markdown(found) + table.everything(found, 1)
    assert "hard batches last" in table.figures(found)
    few = [run for run in found if (run["line"], run["domain"]) != ("hard-last", "gloss")]
    assert (
        shown(table.levers(few, shares))[0] == "| Lever | Translation | Time | Neighbours found |"
    )


def test_the_share_of_neighbours_that_vectors_find():
    x, y = np.random.default_rng(0).standard_normal((2, 40, 6))
    assert neighbours.share_found([x, y], [x, y]) == 1
    others = np.random.default_rng(1).standard_normal((2, 40, 6))
    found = []
    for row in range(40):
        nearest = []
        for a, b in ((x, y), others):
            scores = b @ a[row] / np.linalg.norm(b, axis=1)
            nearest.append([one for one in np.argsort(-scores) if one != row][:16])
        found.append(len({*nearest[0]} & {*nearest[1]}) / 16)
    assert neighbours.share_found([x, y], list(others)) == pytest.approx(np.mean(found))


def test_orders_of_batches():
    """Of batches around a direction of the plane, in degrees, each with its spread."""
    batches = []
    for centre, spread in ((0, 10), (80, 20), (20, 5), (60, 30), (40, 15)):
        angles = np.radians(centre + spread * np.linspace(-1, 1, 6))
        batches.append([np.stack([np.cos(angles), np.sin(angles)], 1)] * 2)
    orders = {name: list(map(int, order(batches))) for name, order in runs.ORDERS.items()}
    assert orders == {
        "rising": [3, 1, 4, 0, 2],
        "falling": [2, 0, 4, 1, 3],
        "near": [0, 2, 4, 3, 1],
        "far": [0, 1, 2, 3, 4],
    }


def test_further_seeds_at_a_rate_do_not_choose_it(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    add(results, "shuffled", (50.0, 50.0, 50.0), 20.0)
    add(results, "shuffled", (48.0, 48.0, 48.0, 48.0), 20.0, rate=2e-4)
    found = table.final(table.runs(results.path), "gloss", "shuffled")
    assert [run["rate"] for run in found] == [1e-4] * 3


def test_the_page_shows_the_results():
    found = [run for run in table.runs() if run["domain"] in table.DOMAINS]
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "training_runs.md").read_text()
    for epochs in (1, 2):
        assert len(table.summary(found, epochs).splitlines()) <= 10  # eight lines and a head
    best = {domain: table.final(found, domain, "planned-hardness-4", 2) for domain in table.DOMAINS}
    alone = [name for name in table.PAPERS
             if name != "shuffled" and not table.final(found, "gloss", name, 2)]  # fmt: skip
    lost = [table.differences(best["translation"], table.final(found, "translation", name, 2))
            for name in alone]  # fmt: skip
    assert f"by {min(lost)[0]:.2f} to {max(lost)[0]:.2f} (one seed)" in page
    mined = table.over(best["code"], table.final(found, "code", "mined-hardness-4", 2), "ndcg@10")
    assert f"on code by {mined[1:]}." in page
    assert (docs / "training_runs.csv").read_text() == table.figures(table.runs())
    for model in ("weak", "scratch"):
        lines = table.markdown(found, 2, model).splitlines()[2:]
        (before, _), (after, over) = (line.split(" | ")[1:3] for line in lines)
        assert f"at {before} and" in page
        assert f" {after} ({over})" in page


def test_runs_that_chose_a_rate_are_not_in_the_table(tmp_path):
    results = command.Results(tmp_path / "runs.jsonl")
    add(results, "cached-1024", (49.0, 48.0, 47.0), 10.0, rate=2e-4)
    for rate, score in ((1e-4, 60.0), (4e-4, 20.0)):
        add(results, "cached-1024", (score,), 10.0, rate=rate)
    found = table.final(table.runs(results.path), "gloss", "cached-1024")
    assert [run["rate"] for run in found] == [2e-4] * 3
    early = [run for run in table.runs(results.path) if run["seed"] == 0]
    assert [run["rate"] for run in table.final(early, "gloss", "cached-1024")] == [1e-4]
