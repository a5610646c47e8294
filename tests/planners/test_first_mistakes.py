"""`batchplan.plan` takes what people have, and the commonest mistakes are told in one line."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import batchplan
from batchplan import BatchplanError, Embeddings, InputError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 8)).astype(np.float32)
Y = X + RNG.standard_normal((48, 8)).astype(np.float32) / 4
DATA = Embeddings.from_arrays(X, Y)
NAN = np.where(np.arange(48)[:, None] == 5, np.float32("nan"), Y)
RANDOM = {"planner": "random", "batch_size": 8}


def plan(*arguments, **options):
    return batchplan.plan(*arguments, **{"device": "cpu", **options})


COLUMNS = [pa.array(side.tolist(), pa.list_(pa.float32(), 8)) for side in (X, Y)]
of_many_kinds = pytest.mark.parametrize(
    "sides",
    [
        (X, Y),
        (DATA,),
        (torch.tensor(X), torch.tensor(Y)),
        (torch.tensor(X, requires_grad=True), torch.nn.Parameter(torch.tensor(Y))),
        COLUMNS,
        (X.tolist(), Y.tolist()),
        (X.astype(float), Y.astype(float)),
    ],
)


@of_many_kinds
def test_sides_of_many_kinds(sides):
    expected = plan(DATA, planner="random", batch_size=8)
    for made in (
        plan(*sides, **RANDOM),
        plan(**dict(zip("xy", sides, strict=False)), **RANDOM),
    ):
        assert made.metadata == expected.metadata
        assert np.array_equal(made.rows, expected.rows)


def refined(*arguments, **options):
    made = batchplan.refine(*arguments, passes=1, device="cpu", **options)
    return made.rows.tolist(), made.metadata


def evaluated(*arguments, **options):
    return batchplan.evaluate(*arguments, random_trials=2, device="cpu", **options).to_dict()


@of_many_kinds
@pytest.mark.parametrize("function", [refined, evaluated])
def test_functions_of_a_plan_take_them_too(function, sides):
    made = plan(DATA, **RANDOM)
    assert function(made, *sides) == function(made, DATA)


def test_bfloat16_and_one_matrix():
    half = plan(torch.tensor(X).bfloat16(), torch.tensor(Y).bfloat16(), **RANDOM)
    assert len(half) == 6
    assert len(plan(X, **RANDOM)) == len(plan(X, planner="random", batch_size=8)) == 6
    assert len(batchplan.mine_negatives(X, Y, batch_size=8, device="cpu")) == 48


MISTAKES = {
    "lengths differ": (lambda: plan(X, Y[:-1]), ["x and y: got 48 and 47 rows", "row i"]),
    "dimensions differ": (lambda: plan(X, Y[:, :4]), ["8 and 4 dimensions", "one space"]),
    "swapped": (lambda: plan("gcbs", DATA), ["x: got the planner 'gcbs'", "planner='gcbs'"]),
    "a planner as y": (lambda: plan(X, "gcbs"), ["y: got the planner 'gcbs'", "planner='gcbs'"]),
    "evaluate swapped": (
        lambda: batchplan.evaluate(DATA, plan(DATA, **RANDOM)),
        ["got Plan as embeddings", "evaluate(plan, embeddings)"],
    ),
    "refine swapped": (
        lambda: batchplan.refine(X, plan(X, Y, **RANDOM)),
        ["got Plan as embeddings", "ndarray as plan", "refine(plan, x, y)"],
    ),
    "a plan's path": (
        lambda: batchplan.refine("plan.npy", X, Y), ["str as plan", "Plan.load reads a plan"],
    ),
    "refine by other rows": (
        lambda: batchplan.refine(plan(X, Y, **RANDOM), X[:-1]), ["47", "48"],
    ),
    "evaluate both sides twice": (
        lambda: batchplan.evaluate(plan(DATA, **RANDOM), DATA, Y), ["y: got ndarray with"],
    ),
    "a path": (lambda: plan("x.npy"), ["the text 'x.npy'", "batchplan.load_embeddings"]),
    "a Path": (lambda: plan(Path("x.npy"), Y), ["the text 'x.npy'", "load_embeddings"]),
    "one vector": (lambda: plan(X[0], Y[0]), ["got 1 dimensions", "expected 2", "np.stack"]),
    "NaN": (lambda: plan(X, NAN), ["y: got 8 NaN or Inf", "row 5", "drop these rows"]),
    "too large a batch": (
        lambda: plan(X, Y, planner="random"), ["batch size: got 64", "at most the 48 rows"],
    ),
    "integers": (
        lambda: plan((X * 9).astype(int), Y), ["int64 (integers)", "float32 or int8", ".astype"],
    ),
    "ragged lists": (lambda: plan([[1.0, 2.0], [1.0]], Y), ["not an array", "(N, d)"]),
    "unknown planner": (
        lambda: plan(X, Y, planner="partitoin"), ["got 'partitoin'", "did you mean 'partition'?"],
    ),
    "unknown option": (
        lambda: plan(X, Y, batchsize=8), ["no option 'batchsize'", "did you mean 'batch_size'?"],
    ),
    "of another planner": (
        lambda: plan(X, Y, planner="gcbs", mega_batches=2),
        ["gcbs: no option 'mega_batches', expected"],
    ),
    "y beside embeddings": (lambda: plan(DATA, Y), ["y: got ndarray with embeddings"]),
    "a text as a number": (lambda: plan(X, Y, batch_size="8"), ["batch size: got '8'", "integer"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    mistake, parts = MISTAKES[name]
    with pytest.raises(BatchplanError) as error:
        mistake()
    assert isinstance(error.value, InputError)
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
