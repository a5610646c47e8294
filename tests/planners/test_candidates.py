"""Plans from lists of candidates: the objective by brute force, and what needs vectors refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchplan
from batchplan import Candidates, InputError
from batchplan.planners import PLANNERS
from tests.dense import unit

from .conftest import batch_of_row
from .test_contract import AS_BATCHES, check

TAU = 0.05


def mined(n=320, k=20, seed=0):
    """Lists, and what they say: float64 (N, N) scores, floors for rows that are not listed."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n // 8, 12))[rng.integers(n // 8, size=n)]
    x, y = (centres + 0.6 * rng.standard_normal((n, 12)) for _ in "xy")
    x, y = unit(x), unit(y)
    S = (x @ y.T).astype(np.float32)
    positive = np.diagonal(S).copy()
    np.fill_diagonal(S, -9)
    ids = np.argsort(-S, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(S, ids, 1)
    told = np.repeat(scores[:, -1:], n, axis=1).astype(np.float64)
    np.put_along_axis(told, ids, scores, 1)
    np.fill_diagonal(told, positive)
    listed = np.zeros((n, n), bool)
    np.put_along_axis(listed, ids, True, 1)
    return Candidates.from_lists(ids, scores, positive), told, listed


def loss(made, told, broken=None, tau=TAU):
    """The mean of log sum exp less the positive, from x to y."""
    total = 0.0
    for batch in made.batches():
        logits = told[np.ix_(batch, batch)] / tau
        if broken is not None:
            logits = np.where(broken[np.ix_(batch, batch)], -np.inf, logits)
        total += (np.logaddexp.reduce(logits, axis=1) - np.diagonal(logits)).sum()
    return total / len(made.rows)


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_plans_lists_or_refuses_them(planner, tmp_path):
    lists, *_ = mined(70)
    options = AS_BATCHES.get(planner, {}) | {"batch_size": 8, "planner": planner}
    if not PLANNERS[planner].lists:
        with pytest.raises(InputError, match=f"candidates: {planner} plans from vectors; use par"):
            batchplan.plan(lists, **options)
        return
    made, again = (batchplan.plan(lists, **options) for _ in range(2))
    check(made, lists, 8)
    assert made.metadata.fingerprint == lists.fingerprint
    for one, name in ((made, "one.npz"), (again, "two.npz")):
        one.save(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_tails_and_devices(tail):
    lists, *_ = mined(150)
    for options in ({}, {"world_size": 2, "scope": "global"}):
        made = batchplan.plan(lists, planner="partition", batch_size=16, tail=tail, **options)
        size = 32 if options else 16
        assert set(np.diff(made.batch_offsets)[:-1]) == {size}


@pytest.mark.parametrize("limited", [False, True])
def test_swaps_raise_what_the_lists_say(limited):
    lists, told, listed = mined()
    options = {"relative_margin": 0.1} if limited else {"guard": False}
    broken = None
    if limited:
        own = np.diagonal(told)
        own = np.maximum(own, sorted(own)[(len(own) - 1) // 2])
        ceilings = own - 0.1 * np.abs(own)
        broken = listed & (told >= np.minimum(ceilings[:, None], ceilings))
        broken |= broken.T
        np.fill_diagonal(broken, False)
    start = batchplan.plan(lists, planner="random", batch_size=16)
    refined = batchplan.refine(start, lists, passes=3, **options)
    if not limited:
        gain = loss(refined, told) - loss(start, told)
        assert refined.metadata.metrics["refine_gain"] == pytest.approx(gain, rel=1e-4)
        assert gain > 1
    else:
        counts = [
            sum(int(broken[np.ix_(batch, batch)].sum()) for batch in one.batches()) // 2
            for one in (start, refined)
        ]
        assert counts[1] == refined.metadata.metrics["broken_pairs"] < counts[0]
    made = batchplan.plan(lists, planner="partition", batch_size=16, mega_batches=1, **options)
    assert loss(made, told, broken) > loss(start, told, broken)


@pytest.mark.parametrize("tau", [1e-6, 1e-3])
def test_swaps_beyond_the_range_of_float32(tau):
    lists, told, _ = mined()
    start = batchplan.plan(lists, planner="random", batch_size=16)
    refined = batchplan.refine(start, lists, passes=3, guard=False, temperature=tau)
    gain = loss(refined, told, tau=tau) - loss(start, told, tau=tau)
    assert refined.metadata.metrics["refine_gain"] == pytest.approx(gain, rel=1e-4)
    assert gain > 0


def test_groups(tmp_path):
    lists, told, _ = mined()
    start = batchplan.plan(lists, planner="random", batch_size=16)
    pq.write_table(pa.table({"group": np.arange(320) // 2}), tmp_path / "g.parquet")
    options = {"group_column": "group", "label_table": str(tmp_path / "g.parquet")}
    made = batchplan.plan(lists, planner="partition", batch_size=16, guard=False, **options)
    batch = batch_of_row(made)
    assert (batch[::2] != batch[1::2]).all()
    assert loss(made, told) > loss(start, told)


@pytest.mark.parametrize(
    "options",
    [
        {"mega_batches": "auto"},
        {"ray": "local"},
        {"reference": ["x.npy"]},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_need_vectors(options):
    lists, *_ = mined(70)
    with pytest.raises(InputError, match="given with candidates, but it needs vectors; leave it"):
        batchplan.plan(lists, planner="partition", batch_size=8, **options)


def test_vectors_beside_lists():
    lists, *_ = mined(70)
    with pytest.raises(InputError, match="y: given with candidates"):
        batchplan.plan(lists, np.ones((70, 3), np.float32), batch_size=8)
    made = batchplan.plan(lists, batch_size=8)
    assert made.metadata.planner == "partition"
    with pytest.raises(InputError, match="evaluate: got candidates, which have no vectors"):
        batchplan.evaluate(made, lists)
