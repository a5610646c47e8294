"""What every planner does with mined negatives: it plans by them, or refuses them."""

import numpy as np
import pytest

import batchplan
from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.planners import PLANNERS
from tests.dense import unit

from .conftest import batch_of_row
from .test_contract import AS_BATCHES, check

TAKES = [name for name, planner in PLANNERS.items() if planner.tuples]
TAU = 0.05


def tuples(n=256, d=12, k=2, seed=0, ragged=False):
    """(x, y, negatives) in clusters; the negatives are of other clusters, so that they say more of
    a batch than the pairs do."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((24, d))
    own, others = rng.integers(24, size=n), rng.integers(24, size=(n, k))
    x = centres[own] + 0.5 * rng.standard_normal((n, d))
    y = x + 0.5 * rng.standard_normal((n, d))
    negatives = centres[others] + 0.3 * rng.standard_normal((n, k, d))
    if ragged:
        negatives[rng.random((n, k)) < 0.4] = 0
    return [part.astype(np.float32) for part in (x, y, negatives)]


def loss(made, x, y, negatives):
    """The mean in-batch loss of both directions, from its formula; rows of zeros do not exist."""
    x, y = unit(x.astype(np.float64)), unit(y.astype(np.float64))
    there = negatives.any(axis=2)
    n = np.where(there[:, :, None], negatives, 1.0).astype(np.float64)
    n, total = unit(n), 0.0
    for batch in made.batches():
        pairs = x[batch] @ y[batch].T / TAU
        mined = np.einsum("id,jkd->ijk", x[batch], n[batch]) / TAU
        mined = np.where(there[batch], mined, -np.inf).reshape(len(batch), -1)
        forth = np.logaddexp.reduce(np.concatenate([pairs, mined], axis=1), axis=1)
        back = np.logaddexp.reduce(pairs, axis=0)
        total += (forth + back - 2 * np.diagonal(pairs)).sum()
    return total / (2 * len(made.rows))


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_plans_tuples_or_refuses_them(planner, tmp_path):
    x, y, negatives = tuples(70)
    options = AS_BATCHES.get(planner, {}) | {"batch_size": 8, "planner": planner}
    if planner not in TAKES:
        with pytest.raises(
            InputError, match=f"got 2 mined negatives per row, but {planner} plans p"
        ):
            batchplan.plan(x, y, negatives=negatives, **options)
        return
    data = Embeddings.from_arrays(x, y, negatives=negatives)
    made, again = (batchplan.plan(data, **options) for _ in range(2))
    check(made, data, 8)
    assert made.metadata.fingerprint == data.fingerprint
    for one, name in ((made, "one.npz"), (again, "two.npz")):
        one.save(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("planner", ["partition", "random"])
def test_negatives_join_what_is_raised(planner, ragged):
    """A plan that knows them shows a higher loss than the plan of the pairs."""
    x, y, negatives = tuples(ragged=ragged)
    options = {"batch_size": 16, "guard": False, "planner": planner}
    options |= {"partition": {"mega_batches": 1}, "random": {"refine": 2}}.get(planner, {})
    pairs = batchplan.plan(x, y, **options)
    made = batchplan.plan(x, y, negatives=negatives, **options)
    random = batchplan.plan(x, y, planner="random", batch_size=16)
    of_pairs, of_tuples = (loss(one, x, y, negatives) for one in (pairs, made))
    assert of_tuples > of_pairs > loss(random, x, y, negatives)
    found = batchplan.evaluate(made, x, y, negatives=negatives, guard=False, random_trials=2)
    assert found.loss_train == pytest.approx(of_tuples, rel=1e-5)


@pytest.mark.parametrize("planner", ["partition", "random"])
def test_a_mined_positive_of_another_row_is_kept_apart(planner):
    """As mining makes them: the negative of a row is the positive of the row most like it."""
    x, y, _ = tuples(128)
    similar = unit(x) @ unit(y).T
    np.fill_diagonal(similar, -1)
    near = similar.argmax(axis=1)
    negatives = y[near][:, None]
    options = {"planner": planner, "batch_size": 16, "relative_margin": 0.1}
    made = batchplan.plan(x, y, negatives=negatives, **options)
    batch = batch_of_row(made)
    together = int((batch == batch[near]).sum())
    assert together <= 4  # what swaps could not part
    free = batchplan.plan(x, y, negatives=negatives, planner=planner, batch_size=16, guard=False,
                          **({"refine": 2} if planner == "random" else {}))  # fmt: skip
    batch = batch_of_row(free)
    assert int((batch == batch[near]).sum()) > 20
    found = batchplan.evaluate(free, x, y, negatives=negatives, relative_margin=0.1)
    assert found.guard.mined.broken > 0


def test_mega_batches_resume_and_refine(tmp_path):
    x, y, negatives = tuples(400, ragged=True)
    data = Embeddings.from_arrays(x, y, negatives=negatives)
    options = {"planner": "partition", "batch_size": 16, "mega_batches": 4}
    made = batchplan.plan(data, **options)
    kept = batchplan.plan(data, **options, resume=str(tmp_path / "kept"))
    assert np.array_equal(made.rows, kept.rows)
    again = batchplan.plan(data, **options, resume=str(tmp_path / "kept"))
    assert np.array_equal(made.rows, again.rows)
    other = Embeddings.from_arrays(x, y)
    pairs = batchplan.plan(other, **options, resume=str(tmp_path / "kept"))
    assert np.array_equal(pairs.rows, batchplan.plan(other, **options).rows)
    start = batchplan.plan(data, planner="random", batch_size=16)
    refined = batchplan.refine(start, data, passes=2, guard=False)
    gain = loss(refined, x, y, negatives) - loss(start, x, y, negatives)
    assert refined.metadata.metrics["refine_gain"] == pytest.approx(gain, rel=1e-4)


def test_the_chosen_plan_and_a_reference(tmp_path):
    x, y, negatives = tuples(400)
    made = batchplan.plan(x, y, negatives=negatives, batch_size=16)
    assert made.metadata.planner == "partition"
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(InputError, match="reference: given with mined negatives"):
        batchplan.plan(
            x, y, planner="partition", negatives=negatives, relative_margin=0.1,
            reference=[str(tmp_path / "x.npy")], reference_pair=[str(tmp_path / "y.npy")],
        )  # fmt: skip
