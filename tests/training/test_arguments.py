"""Each public argument of the training API: out of its range it is refused in one line."""

import inspect
from collections.abc import Mapping

import numpy as np
import pytest
import torch

import batchplan
from batchplan import BatchplanError, InputError
from batchplan.training import EpochPlans, MultiDatasetPlans, PlanBatchSampler, Recorder
from batchplan.training.arguments import Arguments

ROWS = 32
X = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
NO_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_CARD])]


@pytest.fixture
def epochs(tmp_path):
    def epochs(name="plans", **options):
        given = {"embed": lambda rows: X[rows], "num_rows": ROWS, "batch_size": 8, **options}
        return EpochPlans(**{"folder": tmp_path / name, "rank": 0, "world_size": 1, **given})

    return epochs


@pytest.fixture
def several(epochs):
    def several(**options):
        plans = {name: epochs(name, embeddings="training") for name in "ab"}
        return MultiDatasetPlans(**{"plans": plans, **options})

    return several


def refused(name, call):
    with pytest.raises(BatchplanError) as error:
        call()
    assert str(error.value).startswith(name.replace("_", " ")), error.value
    assert "\n" not in str(error.value)
    assert len(str(error.value)) <= 500


ODD = [True, 1.5, -1, "2", [1], {}, b"1", float("nan"), len, np.float64(0.5), np.array([1, 2])]
COUNTS = ["num_rows", "planned_epochs", "every", "keep", "seed", "rank", "world_size"]


@pytest.mark.parametrize("value", [*ODD, None, 0], ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_of_epoch_plans(name, value, epochs):
    least = {"seed": 0, "rank": 0}.get(name, 1)
    optional = "None" in str(inspect.get_annotations(Arguments)[name])
    if (type(value) is int and value == least == 0) or (value is None and optional):
        epochs(**{name: value})
    else:
        refused(name, lambda: epochs(**{name: value}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("folder", [3, None, [1], True]),
        ("planner", [3, None, ["gcbs"], "none"]),
        ("embed", [None, 3, "embed"]),
        ("predict", [3, "predict", X]),
        ("epochs", [0, -1, "1", True, [1], {}, float("nan")]),
        ("random_epochs", [-1, -0.5, "1", True, [1], {}, float("nan")]),
        ("same", [3, "same", X]),
        ("embeddings", [None, "stale", 1]),
        ("data", [3, ["a"]]),
        ("timeout", [-1, "1", None, True, float("nan")]),
        ("ahead", [0, 1, -1, 1.5, "0.1", True]),
        ("device", [3, None, "gpu"]),
        ("memory", [0, -1, [1], "much"]),
        ("batch_size", [0, "8", None, 1.5]),
    ],
)
def test_another_argument_of_epoch_plans(name, values, epochs):
    for value in values:
        refused(name, lambda value=value: epochs(**{name: value}))


@pytest.mark.parametrize("value", [*ODD, "first"], ids=repr)
def test_an_epoch_or_a_position(value, epochs, tmp_path):
    plans = epochs()
    sampler = PlanBatchSampler(batchplan.plan(X, planner="random", batch_size=8))
    recorder = Recorder(tmp_path / "trace")
    batch = {"batchplan_row": [1]}
    for call in (plans.path, plans.for_epoch, plans.existing, sampler.set_epoch):
        refused("epoch", lambda call=call: call(value))
    refused("position", lambda: sampler.start_at(value))
    refused("state", lambda: sampler.load_state_dict(value))
    state = sampler.state_dict()
    for name in ("epoch", "position"):
        refused(name, lambda name=name: sampler.load_state_dict({**state, name: value}))
    for name in ("epoch", "step"):
        refused(name, lambda name=name: recorder.wrap([batch], **{name: value}))
        at = {"epoch": 0, "step": 0, name: value}
        refused(name, lambda at=at: recorder.take(batch, **at))
    refused("steps", lambda: recorder.end(0, value))
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize("value", [True, None, 1.5, -1, "other", [1], float("nan")], ids=repr)
def test_an_order(value, several):
    refused("order", lambda: several(order=value))


@pytest.mark.parametrize("value", [None, 3, [1, 2], {}, {"a": 1, "b": 2}], ids=repr)
def test_plans_of_several(value, several):
    refused(
        {dict: "a: got" if value else "data sets"}.get(type(value), "plans"),
        lambda: several(plans=value),
    )
    assert isinstance({}, Mapping)


@pytest.mark.parametrize(
    "rows",
    [[1.5], [ROWS * 2], [-1], ["1"], [[1]], [[1], [1, 2]], [None], 1, None, [True], "1",
     np.array([1], "M8[s]"), torch.empty(1, dtype=torch.int64, device="meta"), [2**70]],
    ids=repr,
)  # fmt: skip
def test_rows_that_are_none(rows, epochs, several):
    for plans in (epochs(embeddings="training"), several()):
        refused("rows", lambda plans=plans: plans.record(rows, X[:1]))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_on_any_device(device, epochs, several):
    for plans in (epochs(embeddings="training"), several()):
        for rows in (torch.tensor([3, 1], device=device), np.array([3, 1], np.uint8), [3, 1]):
            plans.record(rows, torch.from_numpy(X[:2]).to(device))
        plans.record(torch.tensor([], dtype=torch.int64, device=device), torch.zeros(0, 4))
        plans.record([], X[:0])


@pytest.mark.parametrize("x", [None, "x", [[1], [1, 2]], [["a"]], 3, [object()], X[:2], X[0]])
def test_vectors_that_are_none(x, epochs):
    with pytest.raises(InputError, match=r"^(x|vectors): got "):
        epochs(embeddings="training").record([1], x)


def test_rows_of_two_sets(several):
    with pytest.raises(InputError, match="got some of a and some of b, expected those of one"):
        several().record([1, ROWS], X[:2])
    for row in (-1, 2 * ROWS, 1.5, "1"):
        refused("rows", lambda row=row: several().set_of(row))


def test_a_rank_beyond_the_others(epochs, monkeypatch):
    refused("rank", lambda: epochs(rank=2, world_size=2))
    monkeypatch.setenv("RANK", "first")
    refused("RANK", lambda: epochs(rank=None, world_size=None))
