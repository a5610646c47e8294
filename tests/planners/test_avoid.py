"""Plans to avoid: pairs that shared their batches weigh less, and are met again less often."""

import numpy as np
import pytest

import batchplan
from batchplan import InputError
from batchplan.planners import plan

OPTIONS = {"batch_size": 8, "mega_batches": 1, "device": "cpu", "guard": False}


def met(*plans):
    """The pairs that share a batch of any of these plans."""
    return {
        (min(i, j), max(i, j))
        for one in plans
        for batch in one.batches()
        for i in batch.tolist()
        for j in batch.tolist()
        if i != j
    }


def test_rows_meet_others(planted, tmp_path):
    """Of 24 rows in a cluster 7 fit beside a row: three plans can differ, and do."""
    embeddings, labels = planted(8, 24, spread=0.5)
    plans, files = [], []
    for seed in range(3):
        avoided = {"avoid": files} if files else {}
        plans.append(plan(embeddings, seed=seed, **OPTIONS, **avoided))
        files.append(str(tmp_path / f"{seed}.npz"))
        plans[-1].save(files[-1])
    fresh = [plan(embeddings, seed=seed, **OPTIONS) for seed in range(3)]
    again, usual = (len(met(one[2]) & met(*one[:2])) for one in (plans, fresh))
    assert again * 3 < usual
    batches = plans[2].batches()
    at_home = np.mean([np.bincount(labels[batch]).max() for batch in batches])
    assert at_home > 6  # rows near each other still


def test_provenance(make, tmp_path):
    embeddings = make(90)
    first = plan(embeddings, **OPTIONS)
    first.save(tmp_path / "first.npz")
    assert first.metadata.options["avoid"] is None
    name = str(tmp_path / "first.npz")
    one, other = (plan(embeddings, **OPTIONS, avoid=[name]) for _ in range(2))
    assert np.array_equal(one.rows, other.rows)
    assert not np.array_equal(one.rows, first.rows)
    (digest,) = one.metadata.options["avoid"]
    assert digest.startswith("sha256:")


def test_the_last_plan_may_be_the_start_too(make, tmp_path):
    embeddings, name = make(90), str(tmp_path / "first.npz")
    first = plan(embeddings, **OPTIONS)
    first.save(name)
    options = {name: value for name, value in OPTIONS.items() if name != "mega_batches"}
    again = plan(embeddings, **options, from_plan=name, avoid=[name])
    assert len(met(again) & met(first)) < len(met(first))


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_any_plan_of_as_many_rows(make, tmp_path, tail):
    """Some rows are missing, or come twice."""
    name = str(tmp_path / "other.npz")
    plan(make(90), "osgd" if tail == "keep" else "random", batch_size=16, tail=tail).save(name)
    made = plan(make(90), **OPTIONS, avoid=[name, name])
    assert sorted(made.rows) == list(range(90))


def test_refusals(make, tmp_path):
    name = str(tmp_path / "other.npz")
    plan(make(80), "random", batch_size=8).save(name)
    with pytest.raises(InputError) as error:
        plan(make(90), **OPTIONS, avoid=[name])
    assert f"avoid {name}: " in str(error.value)
    assert "made for 80 rows, got data of 90" in str(error.value)
    with pytest.raises(InputError, match=r"gone\.npz"):
        plan(make(90), **OPTIONS, avoid=[str(tmp_path / "gone.npz")])
    with pytest.raises(InputError, match="no option 'avoid'"):
        batchplan.plan(make(90), "gcbs", batch_size=8, avoid=[name])
