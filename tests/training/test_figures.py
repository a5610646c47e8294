"""The figures of a plan that trackers get, against those of an evaluation."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import Embeddings, evaluate, plan
from batchplan.planners.partition.options import PartitionOptions
from batchplan.quality.verdict import verdict_on
from batchplan.runtime import Runtime
from batchplan.training import EpochPlans
from batchplan.training.figures import MEASURED, doubt, measured

N = 400


def pairs(scale=1.0):
    centres = np.random.default_rng(1).standard_normal((20, 8))
    x, y = scale * np.random.default_rng(0).standard_normal((2, N, 8))
    x += centres[np.arange(N) % 20]
    return x.astype(np.float32), (x + y / 2).astype(np.float32)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_they_are_those_of_an_evaluation(similarity):
    data, usual = Embeddings.from_arrays(*pairs()), {"similarity": similarity, "temperature": 0.5}
    options = PartitionOptions(batch_size=16, relative_margin=0.2, **usual)
    made = plan(data, planner="partition", batch_size=16, relative_margin=0.2, **usual)
    found = measured(made, data, options, Runtime(device="cpu"))
    assert tuple(found)[:-1] == MEASURED
    guard = evaluate(made, data, **usual).guard
    assert found["false_negatives_random"] == pytest.approx(guard.false_negatives_random, abs=1e-3)
    assert found["false_negatives"] == guard.false_negatives
    assert found["gain"] == pytest.approx(guard.loss_train - guard.loss_random, rel=0.05)
    assert found["gain"] > 0.1
    x, y = (side.astype(np.float64) for side in pairs())
    if similarity == "cosine":
        x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    scores = x @ y.T
    beaten = (scores > scores.diagonal()[:, None]).sum() / (N * (N - 1))
    assert found["beaten_positives"] == pytest.approx(beaten, abs=1e-5)


def test_groups_are_no_negatives(tmp_path):
    data, table = Embeddings.from_arrays(*pairs()), tmp_path / "labels.parquet"
    pq.write_table(pa.table({"g": np.arange(N) % 5}), table)
    named = {"group_column": "g", "label_table": str(table), "temperature": 0.5}
    made = plan(data, planner="partition", batch_size=16, **named)
    found = measured(made, data, PartitionOptions(batch_size=16, **named), Runtime(device="cpu"))
    guard = evaluate(made, data, groups=np.arange(N) % 5, temperature=0.5).guard
    assert found["false_negatives_random"] == pytest.approx(guard.false_negatives_random, abs=0.01)
    assert found["false_negatives"] == guard.false_negatives
    assert found["gain"] == pytest.approx(guard.loss_train - guard.loss_random, rel=0.05)


def test_a_series_has_them(tmp_path):
    x, y = pairs()
    plans = EpochPlans(
        tmp_path, embed=lambda rows: (x[rows], y[rows]), num_rows=N, batch_size=16,
        random_epochs=1, every=2, rank=0, world_size=1,
    )  # fmt: skip
    assert plans.figures == {}
    kept = []
    for epoch in range(4):
        made = plans.for_epoch(epoch)
        kept.append(plans.figures)
    assert kept[0] == kept[1] == {}
    assert {name: kept[2][name] for name in MEASURED} == {
        name: made.metadata.metrics[name] for name in MEASURED
    }
    assert kept[2]["embedding_seconds"] > 0 == kept[3]["embedding_seconds"]
    assert kept[2]["planning_seconds"] > kept[3]["planning_seconds"]


def test_vectors_that_cannot_be_measured_end_no_training(tmp_path, caplog):
    plans = EpochPlans(
        tmp_path, "random", embed=lambda rows: rows[:, None] * np.ones(4), num_rows=N, guard=True,
        batch_size=16, rank=0, world_size=1,
    )  # fmt: skip
    plans.for_epoch(0)
    assert plans.figures.keys() == {"embedding_seconds", "planning_seconds", "embedded_rows"}
    assert "epoch 0: its plan was not measured (" in caplog.text


@pytest.mark.parametrize(
    ("planner", "options", "says"),
    [
        ("partition", {"guard": False}, "of pairs are likely false negatives (random "),
        ("partition", {}, None),
        ("random", {"guard": False}, None),  # whoever asks for random batches knows
    ],
)
def test_a_plan_that_is_not_worth_it_is_said_once(planner, options, says, tmp_path, caplog):
    """As `evaluate` judges it."""
    x, y = (side.astype(np.float16) for side in pairs())
    plans = EpochPlans(
        tmp_path, planner, embed=lambda rows: (x[rows], y[rows]), num_rows=N, batch_size=16,
        rank=0, world_size=1, **options,
    )  # fmt: skip
    made = [plans.for_epoch(epoch) for epoch in range(3)]
    verdict = verdict_on(evaluate(made[0], x, y))
    assert verdict.train == (says is None and planner != "random")
    warned = [record.message for record in caplog.records if "worth it" in record.message]
    assert len(warned) == (says is not None)
    assert all(says in message for message in warned)
    assert all(message.startswith("epoch 0: its plan may not be") for message in warned)


def test_a_plan_without_gain_is_doubted():
    figures = {**dict.fromkeys(MEASURED, 0.0), "false_negatives_random": 0.0}
    assert doubt({**figures, "gain": 0.1}, 64, 1) == doubt({}, 64, 1) == ""
    assert doubt(figures, 64, 1).endswith("(+0.000 nats); random batches would do as well")
