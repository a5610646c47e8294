"""Every planner plans for several devices: each gets a part of every step."""

from functools import partial

import numpy as np
import pytest

from batchplan import InputError
from batchplan.planners import PLANNERS, mine_negatives, plan
from batchplan.plans import Batching, Plan
from batchplan.training import PlanBatchSampler

from .test_contract import AS_BATCHES

TAILS = ("keep", "drop", "pad")

N, SIZE = 59, 4  # no multiple of 4 rows times 2 or 3 devices, nor are the 15 batches of 2


@pytest.fixture(params=PLANNERS)
def planner(request):
    return request.param


def any_two(**choices):
    """Every planner with some of these choices, so that any two values meet somewhere."""
    most = max(map(len, choices.values()))
    first, *others = choices.values()
    return pytest.mark.parametrize(
        ("planner", *choices),
        [
            (name, first[i % len(first)], *(one[(i + p) % len(one)] for one in others))
            for p, name in enumerate(PLANNERS)
            for i in range(most)
        ],
    )


def make_plan(planner, embeddings, **options):
    options = {"batch_size": SIZE, **AS_BATCHES.get(planner, {}), **options}
    return plan(embeddings, planner=planner, device="cpu", seed=3, **options)


def batches(made):
    return [batch.tolist() for batch in made.batches()]


def fill(found, devices, tail):
    """Whole steps of batches that are samples, by hand: dropped, or repeated from the end."""
    found = list(found)
    missing = -len(found) % devices
    if tail == "drop":
        return found[: len(found) - len(found) % devices]
    if missing:
        last = len(found) - len(found) % devices
        found[last:last] = found[len(found) - devices : last]
    return found


@any_two(devices=(2, 3, 5), tail=TAILS)
def test_devices_with_batches_of_their_own(planner, make, devices, tail):
    embeddings = make(N)
    in_order = partial(make_plan, planner, embeddings, batch_order="planned")
    made = in_order(world_size=devices, tail=tail)
    assert (made.metadata.world_size, made.metadata.scope) == (devices, "device")
    assert made.batch_size == SIZE
    alone = in_order(tail=tail)
    if in_order().metadata.partitions_rows:
        order = in_order().rows
        if (planner, tail) == ("partition", "keep"):
            order = made.rows  # the sizes of the last step are those of its parts
        batching = Batching(SIZE, world_size=devices, tail=tail)
        assert batches(made) == batches(Plan.cut(order, batching, num_rows=N))
        assert made.metadata.partitions_rows == (tail == "keep")
    else:
        assert batches(made) == fill(batches(alone), devices, tail)


@any_two(devices=(2, 3), tail=TAILS)
def test_devices_that_share_batches(planner, make, devices, tail):
    """The batches are those of one device with as many rows as all have together."""
    embeddings = make(N)
    made = make_plan(planner, embeddings, world_size=devices, scope="global", tail=tail)
    large = make_plan(planner, embeddings, batch_size=SIZE * devices, tail=tail)
    assert batches(made) == batches(large)
    assert made.batch_size == SIZE * devices
    assert (made.metadata.world_size, made.metadata.scope) == (devices, "global")
    assert made.metadata.options["batch_size"] == SIZE
    assert made.metadata.metrics == large.metadata.metrics


@any_two(scope=("device", "global"), batch_order=("planned", "shuffled"))
def test_every_rank_takes_as_many_steps(planner, make, tmp_path, scope, batch_order):
    options = {"world_size": 3, "scope": scope, "batch_order": batch_order}
    made = make_plan(planner, make(N), **options)
    made.save(tmp_path / "plan.npy")
    parts = [
        list(PlanBatchSampler(tmp_path / "plan.npy", rank=rank, world_size=3)) for rank in range(3)
    ]
    assert len({len(part) for part in parts}) == 1
    assert all(len(set(batch)) == len(batch) for part in parts for batch in part)
    rows = sorted(row for part in parts for batch in part for row in batch)
    assert rows == sorted(made.rows.tolist())
    again = make_plan(planner, make(N), **made.metadata.options)
    assert batches(again) == batches(made)


def test_one_device_is_what_it_was(planner, make):
    embeddings = make(N)
    alone = make_plan(planner, embeddings)
    same = make_plan(planner, embeddings, world_size=1, scope="global")
    assert batches(same) == batches(alone)


def test_fewer_rows_left_than_devices(make):
    for scope in ("device", "global"):
        options = {"batch_size": 4, "world_size": 3, "scope": scope}
        with pytest.raises(InputError, match=r"2 rows are left .* use --tail drop or --tail pad"):
            make_plan("random", make(50), **options)
        assert make_plan("osgd", make(50), **options).metadata.world_size == 3
        assert make_plan("random", make(50), tail="drop", **options).rows.size == 48
        assert make_plan("random", make(50), tail="pad", **options).rows.size == 60


def test_fewer_samples_than_devices(make):
    with pytest.raises(InputError, match="got 3 devices for 2 batches, expected at most one"):
        make_plan("osgd", make(N), num_batches=2, world_size=3)
    made = make_plan("osgd", make(N), num_batches=4, world_size=3)
    found = batches(made)
    assert found[3:] == [found[1], found[2], found[5]]


def test_a_short_shared_batch(make):
    options = {"as_batches": True, "world_size": 3, "scope": "global"}
    with pytest.raises(InputError, match="batch 8 has 2 rows for 3 devices"):
        make_plan("hardneg", make(49), **options)
    assert len(make_plan("hardneg", make(49), tail="drop", **options)) == 8


def test_a_table_has_no_steps(make):
    embeddings = make(N)
    alone, table = (
        mine_negatives(embeddings, planner="hardneg", batch_size=SIZE, world_size=devices)
        for devices in (1, 3)
    )
    assert np.array_equal(table.negatives, alone.negatives)
    assert (table.metadata.world_size, table.metadata.scope) == (3, "device")
