"""The vectors that plans are made from: embedded in shares, or those of the training steps."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

import batchplan.training.folder
from batchplan import InputError, Plan
from batchplan.training import EpochPlans, PlanBatchSampler, with_rows
from batchplan.training.epochs import process_place
from batchplan.training.folder import PlanFolder
from batchplan.training.step_vectors import StepVectors
from batchplan.training.store import Store
from batchplan.training.vectors import Vectors, share_calls
from tests.frameworks.processes import run

ROWS, DIM = 50, 6


class Towers(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.f, self.g = (torch.nn.Linear(4, DIM, dtype=dtype) for _ in range(2))

    def forward(self, x, y):
        return self.f(x), self.g(y)


def data(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(ROWS, 4).to(dtype), torch.randn(ROWS, 4).to(dtype)


def train(
    folder, embed, *, epochs=2, dtype=torch.float32, rank=0, devices=1, begin=0, **options
):  # fmt: skip
    """Two towers on planned batches: the plans, and each row's vectors in its last step."""
    model, (x, y) = Towers(dtype), data(dtype)
    plans = EpochPlans(
        folder / "plans", embed=embed, num_rows=ROWS, rank=rank, embeddings="training",
        world_size=devices, batch_size=8, **{"planner": "random", "guard": True, **options},
    )  # fmt: skip
    sampler = PlanBatchSampler(plans, rank=rank, world_size=devices)
    loader = DataLoader(with_rows(TensorDataset(x, y)), batch_sampler=sampler)
    seen = np.zeros((2, ROWS, DIM), np.float16)
    for epoch in range(begin, epochs):
        sampler.set_epoch(epoch)
        for (left, right), rows in loader:
            vectors = model(left, right)
            plans.record(rows, *vectors)
            for side, part in zip(seen, vectors, strict=True):
                side[rows] = part.detach().half().numpy()
            logits = vectors[0] @ vectors[1].T
            loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(rows)))
            model.zero_grad()
            loss.backward()
            with torch.no_grad():  # torch.optim loads torch's compiler, which takes seconds
                for weight in model.parameters():
                    weight -= 0.1 * weight.grad
    return plans, seen


def at_first(rows):
    """What the towers give before they are trained."""
    with torch.no_grad():
        return Towers()(*(side[rows] for side in data()))


def kept(plans, epoch):
    """The vectors that an epoch is planned from."""
    return np.stack(plans._vectors.collect(epoch))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_vectors_of_the_last_steps(dtype, tmp_path):
    asked = []

    def embed(rows):
        asked.append(rows.tolist())
        return at_first(rows)

    plans, seen = train(tmp_path, embed, dtype=dtype)
    np.testing.assert_array_equal(kept(plans, 2), seen)
    assert asked == [[*range(ROWS)]]  # before the first epoch alone


def test_nothing_is_embedded_after_a_random_epoch(tmp_path):
    """The first plan is made from the vectors that the steps of the random epoch recorded."""

    def embed(rows):
        raise AssertionError(rows)

    train(tmp_path, embed, epochs=3, planner="partition", random_epochs=1)
    files = sorted((tmp_path / "plans").glob("plan-*.npz"))
    assert Plan.load(files[-1]).metadata.planner == "partition"


def test_an_epoch_is_planned_from_the_steps_of_the_one_before(tmp_path):
    options = {"planner": "partition", "mega_batches": 1}
    plans, seen = train(tmp_path, at_first, epochs=1, **options)
    options |= {"num_rows": ROWS, "batch_size": 8, "rank": 0, "world_size": 1}
    same = EpochPlans(tmp_path / "same", embed=lambda rows: tuple(seen[:, rows]), **options)
    fresh = EpochPlans(tmp_path / "fresh", embed=at_first, **options)
    free = plans.for_epoch(1).digest
    assert same.for_epoch(1).digest == free != fresh.for_epoch(1).digest


def test_rows_of_a_dropped_tail_keep_what_they_had(tmp_path):
    plans, seen = train(tmp_path, at_first, epochs=1, tail="drop")
    left = ~seen.any((0, 2))
    assert left.sum() == 2
    now = kept(plans, 1)
    np.testing.assert_array_equal(now[:, ~left], seen[:, ~left])
    first = np.stack([side.half().numpy() for side in at_first(np.arange(ROWS))])
    np.testing.assert_array_equal(now[:, left], first[:, left])


def test_a_run_that_resumes_embeds_again(tmp_path):
    train(tmp_path, at_first, epochs=1)
    asked = []

    def embed(rows):
        asked.append(len(rows))
        return at_first(rows)

    train(tmp_path, embed, begin=1, epochs=3)
    assert asked == [ROWS]


def make(folder, num_rows, embed=None, embeddings="training"):
    return Vectors(PlanFolder(folder, 1, 1, 0, 1, 10), num_rows, embed, None, embeddings)


def test_none_embeds_alone_what_rank_0_planned_from_meanwhile(tmp_path):
    late = Vectors(PlanFolder(tmp_path, 1, 1, 1, 2, 10), 9, None, None, "fresh")
    late._files.plan_path(3).touch()
    assert late.collect(3) == []  # without a call of embed


def test_the_model_does_not_notice(tmp_path):
    """Neither gradients nor vectors change, and no graph is kept alive."""
    x = torch.randn(3, DIM, requires_grad=True)
    before = x.detach().clone()
    vectors = make(tmp_path, 3)
    vectors.record([0, 1, 2], x * 2)
    (x * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3, DIM), 2.0))
    with torch.no_grad():
        x += 1
    (side,) = vectors.collect(0)
    np.testing.assert_array_equal(side, (before * 2).half().numpy())
    with pytest.raises(InputError, match='made from fresh vectors; pass embeddings="training"'):
        make(tmp_path, 3, embeddings="fresh").record([0], x)


@pytest.mark.parametrize("rows", [[2, 0], np.array([2, 0], np.int32), torch.tensor([2, 0])])
def test_rows_and_vectors_of_all_kinds(rows, tmp_path):
    vectors = make(tmp_path, 3, lambda rows: np.full((len(rows), 2), 9, np.float32))
    vectors.record(rows, np.arange(4.0).reshape(2, 2))
    assert vectors.collect(0)[0].tolist() == [[2, 3], [9, 9], [0, 1]]
    vectors.record(torch.tensor([2, 2]), torch.tensor([[5, 6], [7, 8]], dtype=torch.float16))
    assert vectors.collect(1)[0][2].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("rows", "sides", "says"),
    [
        ([0, 9], [(2, 3)] * 2, "rows: got 9, expected numbers from 0 to 8"),
        ([-1, 2], [(2, 3)] * 2, "rows: got -1, expected numbers from 0 to 8"),
        ([[0, 1]], [(2, 3)] * 2, r"rows: got shape \(1, 2\) of int64, expected integers"),
        ([0.5, 1], [(2, 3)] * 2, r"rows: got shape \(2,\) of float64"),
        ([0], [(2, 3)] * 2, r"got \(2, 3\) and \(2, 3\) for 1 rows, expected 2 of shape \(1, 3\)"),
        ([0, 1], [(2, 3)], r"got \(2, 3\) for 2 rows, expected 2 of shape \(2, 3\)"),
        ([0, 1], [(2, 3), (2, 4)], r"got \(2, 3\) and \(2, 4\) for 2 rows"),
        ([0, 1], [(2, 4)] * 2, r"expected 2 of shape \(2, 3\); return or pass x and y"),
    ],
)
def test_refusals(rows, sides, says):
    steps = StepVectors(9)
    steps.record([0, 1], *np.ones((2, 2, 3)))
    with pytest.raises(InputError, match=says):
        steps.record(rows, *(torch.ones(side) for side in sides))
    assert len(steps.take()) == 1  # nothing of the step is kept


@pytest.mark.parametrize("value", [np.nan, np.inf, -7e4])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_what_is_no_number_is_refused(value, kind):
    steps = StepVectors(9)
    y = np.ones((2, 3), np.float32)
    y[1, 2] = value
    with pytest.raises(InputError, match="y: row 7 has NaN or values beyond 65504, the largest"):
        steps.record([3, 7], kind(np.ones((2, 3), np.float32)), kind(y))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_zeros_are_found_in_the_step_that_records_them(similarity, tmp_path):
    options = {"planner": "partition", "random_epochs": 1, "similarity": similarity}
    plans = EpochPlans(
        tmp_path / "plans", embed=at_first, num_rows=ROWS, batch_size=8, embeddings="training",
        **options,
    )  # fmt: skip
    x, y, negative = np.ones((3, 2, DIM), np.float32)
    plans.record([0, 1], x, y, negative * 0)  # a missing mined negative
    y[1] = 1e-9  # 0 in float16
    if similarity == "dot":
        plans.record([3, 7], x, y, negative)
        return
    with pytest.raises(
        InputError, match="y: row 7 has a vector of zeros, as 1 of 2 rows, for which"
    ):
        plans.record([3, 7], x, y, negative)


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), max_size=20))
def test_the_last_vectors_of_each_row_are_kept_in_bounded_memory(batches):
    steps, last = StepVectors(5), {}
    for number, rows in enumerate(batches):
        vectors = np.array([[number, place] for place in range(len(rows))], np.float32)
        steps.record(rows, vectors)
        last |= dict(zip(rows, vectors.tolist(), strict=True))
        assert sum(len(kept) for kept, _ in steps._kept) <= 10
    taken = {}
    for rows, (side,) in steps.take():
        taken |= dict(zip(rows.tolist(), side.tolist(), strict=True))
    assert taken == last


@given(st.integers(0, 40_000), st.integers(1, 9))
def test_every_row_is_embedded_once_in_calls_of_one_size(count, devices):
    calls = [list(share_calls(count, rank, devices)) for rank in range(devices)]
    assert len({tuple(len(call.rows) for call in own) for own in calls}) == 1
    asked = [call.rows[: call.asked] for together in zip(*calls, strict=True) for call in together]
    assert np.array_equal(np.concatenate([np.zeros(0, int), *asked]), np.arange(count))
    extra = sum(len(call.rows) for own in calls for call in own) - count
    assert extra < devices * max(1, len(calls[0]))


def together(folder, tail, slow):
    """Every process records its part; that of rank 0 has all rows in the end."""
    distributed.init_process_group("gloo")
    rank, devices = process_place()
    if rank == slow:  # it looks at the folder when the others have planned and gone on
        batchplan.training.folder._PAUSES = (0.5, 0.5)
    plans, seen = train(folder, at_first, rank=rank, devices=devices, tail=tail, epochs=3)
    sides = plans._vectors.collect(3)
    return seen, np.stack(sides) if rank == 0 else sides


@pytest.mark.parametrize(("tail", "slow"), [("keep", 1), ("pad", 0)])
def test_several_processes(tail, slow, tmp_path):
    results = run(together, 2, tmp_path, tail, slow)
    expected = results[0][0].copy()
    met = set()
    plan = EpochPlans(
        tmp_path / "plans", "random", embed=at_first, num_rows=ROWS, rank=0, world_size=2,
        batch_size=8, tail=tail, guard=True,
    ).existing(2)  # fmt: skip
    for rank, (seen, _) in enumerate(results):
        rows = [row for part in PlanBatchSampler(plan, rank=rank, world_size=2) for row in part]
        expected[:, rows] = seen[:, rows]  # a row that both had: that of the highest rank
        met.update(rows)
    assert met == set(range(ROWS))
    np.testing.assert_array_equal(results[0][1], expected)
    assert results[1][1] == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_store_that_is_lent(count):
    """As many sides as there are, and both see what either puts there."""
    kind = np.dtype([("row", np.int64), *((f"side {i}", np.float16, DIM) for i in range(count))])
    part = np.zeros(ROWS, kind)
    part["row"] = np.arange(ROWS)
    for i in range(count):
        part[f"side {i}"] = np.random.default_rng(i).standard_normal((ROWS, DIM))
    store = Store(ROWS)
    store.put(part, 0)
    store.keep_same([np.arange(ROWS) // 2 * 2] * count)
    document, _files = store.lend()
    document["sides"] = [os.dup(number) for number in document["sides"]]
    document["same"] = [(os.dup(number), shape) for number, shape in document["same"]]
    other = Store.borrowed(document)
    other.share()
    assert len(store.sides) == len(other.sides) == count
    for i, (own, lent) in enumerate(zip(store.sides, other.sides, strict=True)):
        assert np.array_equal(own, part[f"side {i}"][np.arange(ROWS) // 2 * 2])
        assert np.array_equal(own, lent)


@pytest.mark.parametrize(("sides", "dim", "message"), [
    (1, DIM, "returned 1 of the sides x, y and mined negatives in the process of rank 1, expected"),
    (3, DIM, "returned 3 of the sides"),
    (2, DIM + 1, "returned vectors of 7 numbers in the process of rank 1, expected 6"),
])  # fmt: skip
def test_processes_return_the_same_sides(sides, dim, message):
    def part(sides, dim):
        kind = [("row", np.int64), *((f"side {i}", np.float16, dim) for i in range(sides))]
        return np.ones(4, kind)

    store = Store(ROWS)
    store.put(part(2, DIM), 0)
    store.put(np.empty(0, [("row", np.int64)]), 1)  # a process without rows
    with pytest.raises(InputError, match=message):
        store.put(part(sides, dim), 1)
