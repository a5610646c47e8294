"""`EmbeddingRecorder`: what training steps computed is what the next epoch is planned from."""

import numpy as np
import pytest
import torch
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

from batchplan import InputError
from batchplan.training import (
    EmbeddingRecorder,
    EpochPlans,
    PlanBatchSampler,
    embedding_recorder,
    with_rows,
)
from batchplan.training.epochs import process_place
from tests.frameworks.processes import FailedError, run

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


def train(folder, recorder, *, epochs=2, dtype=torch.float32, rank=0, devices=1, **options):
    """Two towers on planned batches; the last vectors of each row, as the steps had them."""
    model, (x, y) = Towers(dtype), data(dtype)
    plans = EpochPlans(
        folder / "plans", embed=recorder.embeddings, num_rows=ROWS, rank=rank,
        world_size=devices, batch_size=8, **{"planner": "random", **options},
    )  # fmt: skip
    sampler = PlanBatchSampler(plans, rank=rank, world_size=devices)
    loader = DataLoader(with_rows(TensorDataset(x, y)), batch_sampler=sampler)
    seen = np.zeros((2, ROWS, DIM), np.float16)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for (left, right), rows in loader:
            vectors = model(left, right)
            recorder.record(rows, *vectors)
            for side, part in zip(seen, vectors, strict=True):
                side[rows] = part.detach().half().numpy()
            logits = vectors[0] @ vectors[1].T
            loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(rows)))
            model.zero_grad()
            loss.backward()
            with torch.no_grad():  # torch.optim loads torch's compiler, which takes seconds
                for weight in model.parameters():
                    weight -= 0.1 * weight.grad
        recorder.gather()
    return seen


def at_first(rows):
    """What the towers give before they are trained."""
    with torch.no_grad():
        return Towers()(*(side[rows] for side in data()))


def kept(embeddings):
    return np.stack([embeddings.x.rows(0, ROWS), embeddings.y.rows(0, ROWS)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("on_disk", [False, True])
def test_the_vectors_of_the_last_steps(dtype, on_disk, tmp_path):
    asked = []

    def embed(rows):
        asked.append(rows)
        return at_first(rows)

    recorder = EmbeddingRecorder(ROWS, embed, on_disk=on_disk)
    seen = train(tmp_path, recorder, dtype=dtype)
    np.testing.assert_array_equal(kept(recorder.embeddings()), seen)
    (rows,) = asked  # before the first epoch alone
    np.testing.assert_array_equal(rows, np.arange(ROWS))


def test_an_epoch_is_planned_from_the_steps_of_the_one_before(tmp_path):
    recorder = EmbeddingRecorder(ROWS, at_first)
    options = {"planner": "partition", "mega_batches": 1}
    seen = train(tmp_path, recorder, epochs=1, **options)
    plans = EpochPlans(
        tmp_path / "again", embed=lambda: tuple(seen), batch_size=8, rank=0, world_size=1, **options
    )
    free = EpochPlans(
        tmp_path / "free", embed=recorder.embeddings, batch_size=8, rank=0, world_size=1, **options
    )
    assert plans.for_epoch(1).digest == free.for_epoch(1).digest
    fresh = EpochPlans(
        tmp_path / "fresh", embed=lambda: at_first(np.arange(ROWS)), batch_size=8, rank=0,
        world_size=1, **options,
    )  # fmt: skip
    assert fresh.for_epoch(1).digest != free.for_epoch(1).digest


def test_rows_of_a_dropped_tail_keep_what_they_had(tmp_path):
    asked = []

    def embed(rows):
        asked.append(len(rows))
        return at_first(rows)

    recorder = EmbeddingRecorder(ROWS, embed)
    seen = train(tmp_path, recorder, epochs=1, tail="drop")
    left = ~seen.any((0, 2))
    assert left.sum() == 2
    now = kept(recorder.embeddings())
    np.testing.assert_array_equal(now[:, ~left], seen[:, ~left])
    first = np.stack([side.half().numpy() for side in at_first(np.arange(ROWS))])
    np.testing.assert_array_equal(now[:, left], first[:, left])
    assert asked == [ROWS]


def test_the_model_does_not_notice():
    """Neither gradients nor vectors change, and the recorder keeps no graph alive."""
    x = torch.randn(3, DIM, requires_grad=True)
    before = x.detach().clone()
    recorder = EmbeddingRecorder(3)
    recorder.record([0, 1, 2], x * 2)
    (x * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3, DIM), 2.0))
    with torch.no_grad():
        x += 1
    embeddings = recorder.embeddings()
    assert not embeddings.paired
    np.testing.assert_array_equal(embeddings.x.rows(0, 3), (before * 2).half().numpy())


@pytest.mark.parametrize("rows", [[2, 0], np.array([2, 0], np.int32), torch.tensor([2, 0])])
def test_rows_and_vectors_of_all_kinds(rows):
    vectors = np.arange(4.0).reshape(2, 2)
    recorder = EmbeddingRecorder(3, lambda rows: np.full((len(rows), 2), 9, np.float32))
    recorder.record(rows, vectors)
    assert recorder.embeddings().x.rows(0, 3).tolist() == [[2, 3], [9, 9], [0, 1]]
    recorder.record(torch.tensor([2, 2]), torch.tensor([[5, 6], [7, 8]], dtype=torch.float16))
    assert recorder.embeddings().x.rows(2, 3).tolist() == [[7, 8]]


def test_rows_that_no_step_has_met():
    recorder = EmbeddingRecorder(5)
    with pytest.raises(InputError, match="no step has met 5 of 5 rows, the first of them row 0"):
        recorder.embeddings()
    recorder.record([0, 1, 3], np.ones((3, 2)))
    with pytest.raises(InputError, match=r"met 2 of 5 rows, the first of them row 2; pass embed="):
        recorder.embeddings()
    recorder.record([2, 4], np.ones((2, 2)))
    assert recorder.embeddings().num_rows == 5


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
        ([0, 1], [(2, 4)] * 2, r"expected 2 of shape \(2, 3\), as in the steps before"),
    ],
)
def test_refusals(rows, sides, says):
    recorder = EmbeddingRecorder(9)
    recorder.record([0, 1], *np.ones((2, 2, 3)))
    with pytest.raises(InputError, match=says):
        recorder.record(rows, *(torch.ones(side) for side in sides))
    with pytest.raises(InputError, match="num rows: got 1, expected at least 2"):
        EmbeddingRecorder(1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -7e4])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_what_is_no_number_is_refused(value, kind):
    recorder = EmbeddingRecorder(9)
    y = np.ones((2, 3), np.float32)
    y[1, 2] = value
    with pytest.raises(InputError, match="y: row 7 has NaN or values beyond 65504, the largest"):
        recorder.record([3, 7], kind(np.ones((2, 3), np.float32)), kind(y))
    with pytest.raises(InputError, match="met 9 of 9 rows"):  # nothing of the step is kept
        recorder.embeddings()


def together(folder, tail):
    """Every process records its part; that of rank 0 has all rows in the end."""
    embedding_recorder._AT_ONCE = 100  # bytes, so that several sends are needed
    distributed.init_process_group("gloo")
    rank, devices = process_place()
    recorder = EmbeddingRecorder(ROWS, at_first)
    seen = train(folder, recorder, rank=rank, devices=devices, tail=tail, epochs=3)
    return seen, kept(recorder.embeddings()) if rank == 0 else None


@pytest.mark.parametrize("tail", ["keep", "pad"])
def test_several_processes(tail, tmp_path):
    results = run(together, 2, tmp_path, tail)
    expected = results[0][0].copy()
    met = set()
    plan = EpochPlans(
        tmp_path / "plans", "random", embed=None, rank=0, world_size=2, batch_size=8, tail=tail
    ).existing(2)
    for rank, (seen, _) in enumerate(results):
        rows = [row for part in PlanBatchSampler(plan, rank=rank, world_size=2) for row in part]
        expected[:, rows] = seen[:, rows]  # a row that both had: that of the highest rank
        met.update(rows)
    assert met == set(range(ROWS))
    np.testing.assert_array_equal(results[0][1], expected)


def forgetful(folder, gathers):
    recorder = EmbeddingRecorder(ROWS, at_first)
    recorder.record([3], *np.ones((2, 1, DIM)))
    if gathers:
        recorder.gather()
    recorder.embeddings()


@pytest.mark.parametrize(
    ("gathers", "says"),
    [
        (False, r"other processes recorded steps that are not here; call gather\(\) in all"),
        (True, "gather: 2 processes were started, but torch.distributed does not know them"),
    ],
)
def test_who_forgets_to_gather_is_told(gathers, says, tmp_path):
    with pytest.raises(FailedError, match=says):
        run(forgetful, 2, tmp_path, gathers)
