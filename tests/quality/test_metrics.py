"""The table of metrics against what an evaluation holds."""

import numpy as np
import pytest

from batchplan.quality import evaluate
from batchplan.quality.metrics import METRICS, Metric, judged, texts, value_of

# What was asked for and counts of the data, which are no metrics, what is not one number, and what
# only other metrics use.
SETTINGS = {"num_rows", "num_batches", "batch_size", "temperature", "similarity"}
OTHERS = (
    "similarity_histogram", "similarity_percentiles", "guard.by",
    "guard.mined.examples", "guard.mined.negatives", "guard.mined.rows_affected",
    "guard.loss_random", "guard.loss_global", "guard.false_negatives",
    "answers.negatives", "answers.share", "answers.share_random", "answers.several",
    "answers.examples", "answers.planned_with",
)  # fmt: skip
ABOUT = {
    "reference",
    "planned_reference",
    "without_groups",
    "pairs",
    "relative_margin",
    "absolute_margin",
    "max_score",
    "limit_from",
    "fresh",
    "gap_random",
    "loss_random_std",
    "rate_random",
}


@pytest.fixture(scope="module")
def found(helpers):
    embeddings = helpers.clustered(45, copies=4, mined=2)
    codes = np.arange(45) // 3
    return evaluate(
        helpers.make_plan(embeddings, 8), embeddings, relative_margin=0.1, groups=codes,
        random_trials=3,
    )  # fmt: skip


def names(document, prefix=""):
    for key, value in document.items():
        name = f"{prefix}{key}"
        if name.startswith(OTHERS) or name in SETTINGS or key in ABOUT:
            continue
        if isinstance(value, dict):
            yield from names(value, f"{name}.")
        else:
            yield name


def test_each_number_of_an_evaluation_has_a_row(found):
    document = found.to_dict()
    rows = {name for name in METRICS if not name.startswith("similarity_percentiles")}
    assert rows == set(names(document))
    for name, metric in METRICS.items():
        assert isinstance(value_of(document, name), int | float), name
        assert metric.name == name
        assert metric.meaning
    assert set(judged()) < set(METRICS)


def test_texts_show_numbers_as_they_are(found):
    shown = texts(found.to_dict())
    assert list(shown) == [name for name, metric in METRICS.items() if metric.label]
    assert shown["loss_train"] == f"{found.loss_train:.4f}"
    recall = found.hard_negative_recall
    assert shown["hard_negative_recall.1"] == (
        f"{recall['1']:.1%} of the 1 hardest, {recall['10']:.1%} of the 10 hardest"
    )
    guard = found.guard
    assert shown["guard.broken"] == (
        f"{guard.broken:,} of {guard.pairs:,} ({100 * guard.false_negatives:.3g}%, "
        f"{100 * guard.false_negatives_random:.3g}% at random)"
    )
    assert shown["partitions_rows"] == "yes"


def test_every_text_can_be_made(found, monkeypatch):
    for name, metric in METRICS.items():
        monkeypatch.setitem(METRICS, name, Metric(**{**vars(metric), "label": name}))
    assert list(texts(found.to_dict())) == list(METRICS)
    assert all(texts(found.to_dict()).values())


def test_what_was_not_measured_is_left_out_and_what_is_undefined_says_so(helpers):
    embeddings = helpers.clustered(5)
    plan = helpers.make_plan(embeddings, 2)
    alone = type(plan)(np.arange(5), np.arange(6), plan.metadata)
    found = evaluate(alone, embeddings, random_trials=2, guard=False)
    shown = texts(found.to_dict())
    assert not [name for name in shown if name.startswith("guard")]
    assert shown["similarity_percentiles.50"].startswith("1%: undefined  5%: undefined")
