"""What each device gets of a plan for several."""

import pickle
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from batchplan import InputError
from batchplan.plans import Batching, Plan
from batchplan.training import PlanBatchSampler

SCOPES = ("device", "global")
TAILS = ("keep", "drop", "pad")


def make(num_rows=22, batch_size=3, devices=2, **options):
    return Plan.cut(
        range(num_rows), Batching(batch_size, world_size=devices, **options), num_rows=num_rows
    )


def ranks(plan, devices):
    return [PlanBatchSampler(plan, rank=rank, world_size=devices) for rank in range(devices)]


def test_batches_take_turns():
    first, second = ranks(make(), 2)
    assert len(first) == len(second) == 4
    assert first.batch_size == second.batch_size == 3
    assert list(first) == [[0, 1, 2], [6, 7, 8], [12, 13, 14], [18, 19]]
    assert list(second) == [[3, 4, 5], [9, 10, 11], [15, 16, 17], [20, 21]]


def test_a_shared_batch_falls_apart_into_contiguous_parts():
    first, second = ranks(make(21, 6, scope="global"), 2)
    assert len(first) == len(second) == 4
    assert first.batch_size == second.batch_size == 3
    assert list(first) == [[0, 1, 2], [6, 7, 8], [12, 13, 14], [18, 19]]
    assert list(second) == [[3, 4, 5], [9, 10, 11], [15, 16, 17], [20]]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), scope=st.sampled_from(SCOPES), tail=st.sampled_from(TAILS))
def test_all_devices_step_together(data, scope, tail):
    per_device, devices = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 6))
    steps, more = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 40))
    left = more % (per_device * devices)
    if tail == "keep" and left < devices:
        left = 0
    num_rows = steps * per_device * devices + left
    size = per_device * (devices if scope == "global" else 1)
    plan = make(num_rows, size, devices, scope=scope, tail=tail)
    parts = [list(sampler) for sampler in ranks(plan, devices)]
    expected = steps + (left > 0 and tail != "drop")
    assert {len(part) for part in parts} == {expected}
    for sampler, part in zip(ranks(plan, devices), parts, strict=True):
        assert len(sampler) == expected
        assert sampler.batch_size == per_device
        assert [len(batch) for batch in part[:steps]] == [per_device] * steps
    together = [[part[step] for part in parts] for step in range(expected)]
    for step in together:
        sizes = [len(batch) for batch in step]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        rows = list(chain(*step))
        assert len(set(rows)) == len(rows)  # a step never shows a row twice
    if scope == "global":
        assert [list(chain(*step)) for step in together] == [b.tolist() for b in plan.batches()]
    if tail == "keep":
        assert sorted(row for part in parts for b in part for row in b) == list(range(num_rows))


def test_loaders_of_all_ranks_from_a_file(tmp_path):
    make(tail="pad").save(tmp_path / "plan.npy")
    dataset = TensorDataset(torch.arange(22))
    for sampler in ranks(str(tmp_path / "plan.npy"), 2):
        again = pickle.loads(pickle.dumps(sampler))
        loader = DataLoader(dataset, batch_sampler=again, num_workers=1)
        assert len(loader) == 4
        assert [batch.tolist() for (batch,) in loader] == list(sampler)


@pytest.mark.parametrize("rank", [1, np.int64(1), torch.tensor(1)])
def test_any_integer_is_a_rank(rank):
    assert next(iter(PlanBatchSampler(make(), rank=rank, world_size=2))) == [3, 4, 5]


def test_one_device_may_say_so():
    plan = make(devices=1)
    assert list(PlanBatchSampler(plan, rank=0, world_size=1)) == list(PlanBatchSampler(plan))


@pytest.mark.parametrize(
    ("devices", "given", "says"),
    [
        (2, {}, "rank: got None with world_size=None, but the plan is for 2 devices"),
        (2, {"rank": 0}, "rank: got 0 with world_size=None"),
        (2, {"world_size": 2}, "rank: got None with world_size=2"),
        (2, {"rank": 2, "world_size": 2}, "pass world_size=2 and a rank from 0 to 1, or plan"),
        (2, {"rank": -1, "world_size": 2}, "rank: got -1 with"),
        (2, {"rank": 0, "world_size": 4}, "world_size=4, but the plan is for 2 devices"),
        (1, {"rank": 1, "world_size": 4}, "for 1 device; pass world_size=1 and a rank from 0 to 0"),
        (1, {"rank": 1, "world_size": 1}, "rank: got 1 with"),
        (2, {"rank": "0", "world_size": 2}, "rank: got '0' with"),
        (2, {"rank": 0.0, "world_size": 2}, "rank: got 0.0 with"),
        (2, {"rank": True, "world_size": 2}, "rank: got True with"),
    ],
)
def test_refusals(devices, given, says):
    with pytest.raises(InputError) as error:
        PlanBatchSampler(make(devices=devices), **given)
    assert says in str(error.value)


@pytest.mark.parametrize("scope", SCOPES)
def test_parts_of_all_devices_step_after_step(scope):
    plan = make(21, 6, 3, scope=scope, tail="keep")
    parts = [list(sampler) for sampler in ranks(plan, 3)]
    together = PlanBatchSampler(plan, rank="all", world_size=3)
    assert list(together) == [part[step] for step in range(len(parts[0])) for part in parts]
    assert len(together) == 3 * len(parts[0])
    assert not hasattr(together, "batch_size")
    assert not hasattr(pickle.loads(pickle.dumps(together)), "batch_size")


def test_the_state_of_all_parts_counts_otherwise():
    plan = make()
    together = PlanBatchSampler(plan, rank="all", world_size=2)
    next(iter(together))
    again = PlanBatchSampler(plan, rank="all", world_size=2)
    again.load_state_dict(together.state_dict())
    assert list(again) == list(together)[1:]
    with pytest.raises(InputError, match="state: of a sampler of all parts"):
        ranks(plan, 2)[0].load_state_dict(together.state_dict())


def test_a_library_that_deals_out_gets_all_parts():
    plan = make()
    with pytest.raises(InputError, match='pass rank="all"'):
        ranks(plan, 2)[1](range(22), 3)
    together = PlanBatchSampler(plan, rank="all", world_size=2)
    assert together(range(22), 3) is together
    for size in (2, 4):
        with pytest.raises(InputError, match="per device, but the plan gives each 3"):
            PlanBatchSampler(make(21, 6, scope="global"), rank="all", world_size=2)(range(21), size)
    with pytest.raises(InputError, match="got 'all' with world_size=None"):
        PlanBatchSampler(plan, rank="all")
