"""Plans, evaluations and comparisons in a notebook: as pages, as data, in other processes."""

import json
import pickle
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import batchplan
from batchplan import Plan, ResourceError
from batchplan.comparison import Comparison, make_setting
from batchplan.comparison.children import Cost, Failure
from batchplan.comparison.ranking import Ranked
from batchplan.notebooks import table

HOSTILE = "<script>alert('&')</script>"


@pytest.fixture(scope="module")
def results():
    """A plan, its evaluation, and a comparison of the plan with itself and with a failure."""
    x, y = np.random.default_rng(0).standard_normal((2, 60, 8), np.float32)
    pairs = x, x + y
    plan = batchplan.plan(*pairs, planner="shuffled", batch_size=8)
    evaluation = batchplan.evaluate(plan, *pairs, random_trials=3)
    cost = Cost(seconds=1.5, peak_memory_bytes=10**9, peak_device_memory_bytes=0, stages={})
    settings = [make_setting(name, {"planner": "shuffled"}) for name in ("a", "b", "c")]
    ranked = [Ranked(setting, evaluation, cost) for setting in settings[:2]]
    return plan, evaluation, Comparison(ranked, [(settings[2], Failure(3, HOSTILE))])


def page_of(result):
    html = result._repr_html_()
    assert "<script" not in html
    return ElementTree.fromstring(f"<div>{html}</div>")


def texts(page, tag):
    return [element.text for element in page.iter(tag)]


def test_pages(results):
    plan, evaluation, comparison = map(page_of, results)
    assert "8 of 8" in texts(plan, "td")
    shown = dict(zip(texts(evaluation, "th"), texts(evaluation, "td"), strict=True))
    assert shown["batches"] == "8 batches of 8 over 60 rows, temperature 0.05, cosine"
    assert shown["loss"] == f"{results[1].loss_train:.4f}"
    assert {"c", "planner", "seconds"} <= set(texts(comparison, "th"))
    assert {"a", "b", "random batches"} <= set(texts(comparison, "td"))
    assert f"failed: {HOSTILE}" in texts(comparison, "td")
    assert results[2].choice.sentence in texts(comparison, "td")


def test_an_evaluation_prints_what_its_page_shows(results):
    page = page_of(results[1])
    lines = zip(texts(page, "th"), texts(page, "td"), strict=True)
    assert repr(results[1]).splitlines() == [f"{name:31} {text}" for name, text in lines]


def test_texts_of_pages_are_escaped():
    html = table([(HOSTILE, "a\x1b\n")], [HOSTILE])
    assert "<script" not in html
    assert html.isprintable()
    assert HOSTILE in "".join(ElementTree.fromstring(html).itertext())


def test_results_survive_a_pickle(results):
    for result in results:
        again = pickle.loads(pickle.dumps(result))
        assert again == result
        assert again is not result
        assert again.to_dict() == result.to_dict()
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()


def test_plans_are_equal_if_their_batches_and_metadata_are(results, tmp_path):
    plan = results[0]
    plan.save(tmp_path / "plan.npy")
    same = Plan.load(tmp_path / "plan.npy")
    assert plan == same
    assert hash(plan) == hash(same)
    assert len({plan, same}) == 1
    turned = Plan(plan.rows[::-1], plan.batch_offsets, plan.metadata)
    for other in (turned, plan.with_metadata(seed=9), "plan", None):
        assert plan != other


def test_data_frames(results):
    plan, evaluation, comparison = results
    frame = plan.to_pandas()
    assert list(frame.columns) == ["batch", "row"]
    batches = frame.groupby("batch")["row"].apply(list).tolist()
    assert batches == plan.to_dict()["batches"] == [batch.tolist() for batch in plan]
    figures = evaluation.to_pandas().set_index("figure")
    assert figures.loc["loss_train", "value"] == evaluation.loss_train
    assert figures.loc["hardness", "value"] == evaluation.hardness
    assert set(figures["standard_error"]) == {0.0}
    assert figures["value"].dtype == np.float64
    plans = comparison.to_pandas()
    assert plans["name"].tolist() == ["a", "b"]
    assert plans["gap_reduction"].tolist() == [evaluation.gap_reduction] * 2
    assert plans["seconds"].tolist() == [1.5] * 2


def test_standard_errors_of_a_sample(results):
    x, y = np.random.default_rng(0).standard_normal((2, 300, 8), np.float32)
    evaluation = batchplan.evaluate(
        batchplan.plan(x, x + y, planner="shuffled"), x, x + y, random_trials=2, sample=64
    )
    figures = evaluation.to_pandas().set_index("figure")["standard_error"]
    assert figures["loss_global"] == evaluation.standard_errors["loss_global"] > 0
    assert not any(name.startswith("standard_errors") for name in figures.index)
    page_of(evaluation)


def test_without_pandas(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for result in results:
        with pytest.raises(ResourceError, match="pandas: is not installed; run pip install pandas"):
            result.to_pandas()
