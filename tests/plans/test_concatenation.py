"""Plans of parts, joined: every batch is there, of the rows of its part."""

import numpy as np
import pytest

from batchplan import InputError
from batchplan.plans import Batching, Plan, concat

BATCH_ORDERS = ("planned", "shuffled")
SCOPES = ("device", "global")
TAILS = ("keep", "drop", "pad")

COUNTS = (50, 23, 48)


def parts_of(**batching):
    rng = np.random.default_rng(1)
    return {
        f"part {number}": Plan.cut(
            rng.permutation(count),
            Batching(4, **batching),
            num_rows=count,
            planner="random",
        )
        for number, count in enumerate(COUNTS)
    }


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("batch_order", BATCH_ORDERS)
def test_the_steps_of_all_parts(batch_order, tail, scope, devices):
    if tail == "keep" and devices == 3:
        pytest.skip("2 rows are left for 3 devices")
    plans = parts_of(tail=tail, scope=scope, world_size=devices)
    joined = concat(plans, batch_order=batch_order, seed=3)
    at_once = devices if scope == "device" else 1
    expected, shift = [], 0
    for plan, count in zip(plans.values(), COUNTS, strict=True):
        batches = [(batch + shift).tolist() for batch in plan.batches()]
        expected += [batches[i : i + at_once] for i in range(0, len(batches), at_once)]
        shift += count
    batches = [batch.tolist() for batch in joined.batches()]
    steps = [batches[i : i + at_once] for i in range(0, len(batches), at_once)]
    assert sorted(steps) == sorted(expected)
    assert (steps == expected) == (batch_order == "planned")
    if batch_order == "shuffled":
        full = [all(len(batch) == joined.batch_size for batch in step) for step in steps]
        assert full == sorted(full, reverse=True)
    metadata = joined.metadata
    assert (metadata.num_rows, metadata.tail, metadata.scope) == (sum(COUNTS), tail, scope)
    assert metadata.partitions_rows == all(plan.metadata.partitions_rows for plan in plans.values())


def test_a_joined_plan_is_saved_as_any(tmp_path):
    joined = concat(parts_of(), seed=1)
    for name in ("a.npy", "b.npz"):
        joined.save(tmp_path / name)
        assert Plan.load(tmp_path / name).digest == joined.digest
    assert concat(parts_of(), seed=1).digest == joined.digest
    assert concat(parts_of(), seed=2).digest != joined.digest


def test_refusals():
    plans = parts_of()
    with pytest.raises(InputError, match="plans: got 1, expected at least two"):
        concat({"alone": plans["part 0"]})
    other = Plan.cut(range(9), Batching(3), num_rows=9, planner="random")
    with pytest.raises(InputError, match=r"^other: its batch size is 3, but 4 in part 0"):
        concat({**plans, "other": other})
    with pytest.raises(InputError, match=r"^by hand: has no metadata"):
        concat({**plans, "by hand": Plan.cut(range(8), Batching(4), num_rows=8)})


def test_files_in_different_orders():
    """No order of all files has the rows of all parts, and only ids would tell."""
    orders = ("natural", None, "lexicographic")
    plans = {
        name: plan.with_metadata(shard_order=order)
        for (name, plan), order in zip(parts_of().items(), orders, strict=True)
    }
    says = r"^part 2: of files in lexicographic order, but those of part 0 are in natural order"
    with pytest.raises(InputError, match=says):
        concat(plans)
    with_ids = {name: plan.with_metadata(ids_digest="9") for name, plan in plans.items()}
    assert concat(with_ids).metadata.shard_order is None
    del plans["part 0"]
    assert concat(plans).metadata.shard_order == "lexicographic"
