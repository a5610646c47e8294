"""Epochs that begin with random batches, and whose rest is planned when the training gets there."""

import json
import pickle
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError, Plan
from batchplan.consumption import Trace, verify
from batchplan.consumption.plans import read_plans
from batchplan.training import EpochPlans, PlanBatchSampler, Recorder

ROWS = 320
X = np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)
Y = X + 0.1
OPTIONS = {
    "num_rows": ROWS, "batch_size": 8, "rank": 0, "world_size": 1, "embeddings": "training",
    "random_epochs": 0.5, "mega_batches": 1,
}  # fmt: skip


class Model:
    """Embeds rows, predicts their vectors, and keeps which, and what was logged before."""

    def __init__(self, log=None):
        self.embedded, self.rows, self.wanted = [], None, None
        self.logged, self._log = [], log

    def embed(self, rows):
        self.embedded += rows.tolist()
        self.logged += [costs(self._log)] if self._log else []
        return X[rows], Y[rows]

    def predict(self, rows, sides, wanted):
        self.rows, self.wanted = rows, wanted
        for side, true in zip(sides, (X, Y), strict=True):
            np.testing.assert_array_equal(side[rows], true.astype(np.float16)[rows])
        return X[wanted], Y[wanted]


def costs(log):
    """The lines that say what planning costs."""
    return [line for line in log.messages if "embedding" in line]


def make(folder, model=None, **options):
    model = model or Model()
    given = {"predict": model.predict, **OPTIONS, **options}
    return EpochPlans(folder / "plans", embed=model.embed, **given)


def train(plans, sampler, epoch=0, stop=None, trace=None):
    """The rows of each step; their vectors are recorded when the next batch was taken."""
    sampler.set_epoch(epoch)
    seen, late = [], []
    for step, rows in enumerate(sampler, sampler.position):
        if step == stop:
            break
        for before in late[:-1]:
            plans.record(before, X[before], Y[before])
        late = [*late[-1:], rows]
        seen.append(rows)
        if trace is not None:
            trace.take({"batchplan_row": rows}, epoch, step, sampler.plan.begun)
    for before in late:
        plans.record(before, X[before], Y[before])
    return seen


def test_the_rest_is_planned_from_what_the_first_half_recorded(tmp_path):
    model = Model()
    plans = make(tmp_path, model)
    sampler = PlanBatchSampler(plans)
    seen = train(plans, sampler, trace=(trace := Recorder(tmp_path / "trace")))
    trace.end(0, len(seen))
    assert sorted(row for rows in seen for row in rows) == list(range(ROWS))
    assert not model.embedded
    assert model.rows.tolist() == [row for rows in seen[:18] for row in rows]  # not the last eighth
    assert sorted(model.wanted) == sorted(row for rows in seen[20:] for row in rows)
    begun, rest = Plan.load(tmp_path / "plans/plan-0000.npz"), sampler.plan
    assert rest == Plan.load(tmp_path / "plans/rest-0000.npz", num_rows=ROWS)
    assert begun.metadata.planner == "random"
    assert rest.metadata.metrics["gain"] > 0
    assert plans.figures["gain"] == rest.metadata.metrics["gain"]
    verdict = verify(read_plans([tmp_path / "plans"]), Trace(tmp_path / "trace"))
    assert verdict.exact
    hard = [np.mean(X[rows] @ X[rows].T) for rows in seen]
    assert np.mean(hard[20:]) > 2 * np.mean(hard[:20])
    seen = train(plans, sampler, 1)  # planned whole, from the vectors of all steps
    assert not model.embedded
    assert [path.name for path in plans.saved()] == ["plan-0000.npz", "plan-0001.npz"]


def test_a_rest_of_a_removed_plan_is_not_taken_for_that_of_the_new_one(tmp_path):
    first = make(tmp_path)
    train(first, PlanBatchSampler(first))
    first.end()
    (tmp_path / "plans/plan-0000.npz").unlink()
    plans = make(tmp_path, seed=7)
    seen = train(plans, sampler := PlanBatchSampler(plans))
    begun = Plan.load(tmp_path / "plans/plan-0000.npz")
    assert sampler.plan.begun == begun.digest
    assert seen[:20] == [batch.tolist() for batch in begun.batches()][:20]
    assert sorted(row for rows in seen for row in rows) == list(range(ROWS))


@pytest.mark.parametrize(("before", "stop", "now"), [(1, 30, 0.5), (0.5, 10, 1), (0.75, 25, 0.5)])
def test_a_resumed_epoch_has_the_random_part_that_it_began_with(before, stop, now, tmp_path):
    """As after a change of the number of epochs."""
    plans = make(tmp_path, random_epochs=before)
    seen = train(plans, sampler := PlanBatchSampler(plans), stop=stop)
    state = {**sampler.state_dict(), "position": stop}
    plans.end()
    resumed = PlanBatchSampler(make(tmp_path, random_epochs=now))
    resumed.load_state_dict(state)
    seen += list(resumed)
    assert sorted(row for rows in seen for row in rows) == list(range(ROWS))
    begun = [batch.tolist() for batch in Plan.load(tmp_path / "plans/plan-0000.npz").batches()]
    assert [rows in begun for rows in seen] == [step < 40 * before for step in range(40)]


@pytest.mark.parametrize("how", [{"embeddings": "fresh"}, {"predict": None}], ids=str)
def test_without_predictions_the_rest_is_embedded(how, tmp_path):
    model = Model()
    plans = make(tmp_path, model, **how)
    sampler = PlanBatchSampler(plans)
    sampler.set_epoch(0)
    seen = list(sampler)
    assert sorted(model.embedded) == sorted(row for rows in seen[20:] for row in rows)


def test_rows_that_no_step_recorded_are_embedded(tmp_path):
    """As after a restart."""
    model = Model()
    sampler = PlanBatchSampler(make(tmp_path, model))
    sampler.set_epoch(0)
    seen = list(sampler)
    assert model.embedded == [row for rows in seen[:18] for row in rows]


@pytest.mark.parametrize(
    ("how", "share", "rows"),
    [
        ({"embeddings": "fresh"}, 14, 160),
        ({"predict": None}, 14, 160),
        ({"embeddings": "fresh", "random_epochs": 0}, 27, 320),
        ({"random_epochs": 0}, 27, 320),
        ({}, None, 0),
        ({"embeddings": "fresh", "planner": "random", "random_epochs": 0}, None, 0),
    ],
    ids=str,
)
def test_what_an_epoch_costs_is_said_once_before_anything_is_embedded(
    how, share, rows, tmp_path, caplog
):
    model = Model(caplog)
    given = {name: value for name, value in OPTIONS.items() if name not in how}
    if how.get("planner") == "random":
        given.pop("mega_batches")
    plans = EpochPlans(tmp_path, embed=model.embed, **{"predict": model.predict, **given, **how})
    sampler = PlanBatchSampler(plans)
    sampler.set_epoch(0)
    said = [f"epoch 0: embedding {rows} of 320 rows takes about {share}% of an epoch"]
    assert costs(caplog) == (said if share else [])
    if how.get("embeddings") == "fresh":
        list(sampler)
    else:
        train(plans, sampler)
    assert len(model.embedded) == len(set(model.embedded)) == rows
    assert all(lines == said for lines in model.logged)
    assert costs(caplog) == (said if share else [])
    assert plans.figures.get("embedded_rows", 0) == rows


def test_what_a_restart_embeds_is_said(tmp_path, caplog):
    model = Model(caplog)
    plans = make(tmp_path, model)
    list(PlanBatchSampler(plans))  # its steps were recorded by a process that is gone
    assert model.logged == [["epoch 0: embedding 144 of 320 rows takes about 12% of an epoch"]]
    assert plans.figures["embedded_rows"] == len(model.embedded) == 144


@pytest.mark.parametrize("stop", [7, 20, 21, 33])
def test_a_sampler_goes_on_in_each_half(stop, tmp_path):
    plans = make(tmp_path)
    sampler = PlanBatchSampler(plans)
    first = train(plans, sampler, stop=stop)
    state = json.loads(json.dumps({**sampler.state_dict(), "position": stop}))
    plans.end()
    again = make(tmp_path)
    sampler = PlanBatchSampler(again)
    sampler.load_state_dict(state)
    rest = list(sampler)
    made = Plan.load(tmp_path / "plans/rest-0000.npz")
    assert first + rest == [rows.tolist() for rows in made]


def test_a_state_from_before_the_rest_was_planned(tmp_path):
    """A checkpoint of the first half, of a run that was killed in the other one."""
    plans = make(tmp_path)
    sampler = PlanBatchSampler(plans)
    train(plans, sampler, stop=5)
    state = {**sampler.state_dict(), "position": 5}
    seen = train(plans, sampler)
    plans.end()
    sampler = PlanBatchSampler(make(tmp_path))
    sampler.load_state_dict(state)
    assert list(sampler) == seen[5:]
    with pytest.raises(InputError, match=r"this plan is"):
        sampler.load_state_dict({**state, "plan": "b2:0"})


def test_groups_stay_in_different_batches(tmp_path):
    groups = np.arange(ROWS) // 4
    table = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"group": groups}), table)
    plans = make(tmp_path, group_column="group", label_table=str(table))
    seen = train(plans, PlanBatchSampler(plans))
    for rows in seen:
        assert len(set(groups[rows])) == 8
    made = Plan.load(tmp_path / "plans/rest-0000.npz")
    assert made.metadata.options["label_table"] == str(table)
    assert {path.name for path in (tmp_path / "plans").iterdir()} == {
        "run.json", "plan-0000.npz", "rest-0000.npz"
    }  # fmt: skip


def test_answers_among_the_random_rows_are_known(tmp_path):
    """A document answers an anchor of the planned half, although their row was in the random one,
    or in no row but on a list."""
    rng = np.random.default_rng(0)
    asked, found = (rng.integers(0, 150, ROWS).astype(str) for _ in range(2))
    listed = rng.integers(0, 150, (2, 200)).astype(str)
    table, known = tmp_path / "ids.parquet", tmp_path / "known.parquet"
    pq.write_table(pa.table({"a": asked, "d": found}), table)
    pq.write_table(pa.table(list(listed), names=["query", "document"]), known)
    plans = make(tmp_path, anchor_id="a", positive_id="d", label_table=str(table), known=str(known))
    answers = {*zip(asked, found, strict=True), *zip(*listed, strict=True)}
    seen = train(plans, PlanBatchSampler(plans))
    assert sorted(np.concatenate(seen)) == list(range(ROWS))
    for rows in seen:
        assert not [(i, j) for i, j in permutations(rows, 2) if (asked[i], found[j]) in answers]
    made = Plan.load(tmp_path / "plans/rest-0000.npz")
    assert made.metadata.options["known"] == str(known)


@pytest.mark.parametrize(
    ("random_epochs", "epochs", "turns"),
    [
        (0.25, None, [10, None]),
        (1.5, None, [None, 20]),
        (0.01, None, [1, None]),
        (0.99, None, [39, None]),
        (None, 1, [20, None]),
        (None, 0.5, [10, None]),
        (None, 1.5, [30, None]),
        (None, 2, [None, None]),
        (None, None, [None, None]),
        (0, 1, [None, None]),
    ],
)
def test_how_many_batches_are_random(random_epochs, epochs, turns, tmp_path):
    plans = make(tmp_path, random_epochs=random_epochs, epochs=epochs)
    assert [plans.turn(epoch) for epoch in range(2)] == turns


def test_fewer_rows_than_a_step_needs_have_no_rest(tmp_path, caplog):
    plans = make(tmp_path, batch_size=400, predict=None)
    assert plans.turn(0) is None
    with pytest.raises(InputError, match="got 400, expected at most the 320 rows"):
        plans.for_epoch(0)
    assert not costs(caplog)


def test_plans_are_pickled_without_the_model(tmp_path):
    plans = make(tmp_path)
    train(plans, PlanBatchSampler(plans))
    copy = pickle.loads(pickle.dumps(plans))
    assert copy.for_epoch(0) == plans.for_epoch(0)


def test_old_rests_are_removed(tmp_path):
    plans = make(tmp_path, keep=1)
    sampler = PlanBatchSampler(plans)
    for epoch in range(2):
        train(plans, sampler, epoch)
    assert [path.name for path in (tmp_path / "plans").glob("*.npz")] == ["plan-0001.npz"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"every": 2}, "random epochs: got 0.5 with every, expected a whole"),
        (
            {"reference": ["x.npy"], "reference_pair": ["y.npy"]},
            "random epochs: got 0.5 with reference, refer",
        ),
        ({"planner": "rwr"}, "random epochs: got rwr, expected a planner that uses each row once"),
    ],
)
def test_what_has_no_rest(options, says, tmp_path):
    given = {name: value for name, value in OPTIONS.items() if name != "mega_batches"}
    with pytest.raises(InputError, match=says):
        EpochPlans(tmp_path, embed=Model().embed, **{**given, **options})


@pytest.mark.parametrize(
    ("predicted", "says"),
    [
        (lambda *_: (X[:3], Y[:3]), r"predict: got \(3, 8\)"),
        (lambda _, __, wanted: (np.full((len(wanted), 8), np.nan),), "x: row .* has NaN"),
    ],
)
def test_wrong_predictions_are_refused(predicted, says, tmp_path):
    plans = make(tmp_path, predict=predicted)
    with pytest.raises(InputError, match=says):
        train(plans, PlanBatchSampler(plans))
