"""Layouts, against what their loaders do: dealing out rows, shards and batches, one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.materialize import lay_out
from batchplan.plans import Batching, Plan
from batchplan.training import PlanBatchSampler

from .conftest import plan_of


def expected(plan):
    """The rows of each step of each device, as a list of lists of lists."""
    size = plan.metadata.world_size
    return [list(PlanBatchSampler(plan, rank=rank, world_size=size)) for rank in range(size)]


def cut(rows, size):
    """What a loader makes of a stream."""
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def streamed(shards, workers, size):
    """What a loader with workers makes of shards: shard s goes to worker s % K, each worker cuts
    what it reads, and the loader takes a batch of each in turn."""
    queues = []
    for worker in range(workers):
        rows = [row for shard in shards[worker::workers] for row in shard.tolist()]
        queues.append(cut(rows, size))
    batches = []
    while any(queues):
        batches += [queue.pop(0) for queue in queues if queue]
    return batches


def laid_out(*arguments, **options):
    """The folders, or None, and what was said."""
    try:
        return lay_out(*arguments, **options), ""
    except InputError as error:
        return None, str(error)


plans = st.builds(
    lambda batch, world, scope, steps, left, tail: plan_of(
        batch * (world if scope == "device" else 1) * steps + left,
        batch,
        tail=tail,
        world_size=world,
        scope=scope,
    ),
    st.integers(4, 7),
    st.integers(1, 4),
    st.sampled_from(["device", "global"]),
    st.integers(1, 5),
    st.sampled_from([0, 4]),
    st.sampled_from(["keep", "drop", "pad"]),
)


@settings(max_examples=150)
@given(plans, st.integers(1, 3), st.sampled_from([1, 10, 25, 1000]))
def test_ranks_give_each_device_its_batches(plan, workers, shard_rows):
    parts = expected(plan)
    folders, said = laid_out(plan, "ranks", workers=workers, shard_rows=shard_rows)
    if folders is None:
        assert workers > len(parts[0])
        assert "workers" in said
        return
    assert list(folders) == [f"rank-{rank}" for rank in range(len(parts))]
    for shards, own in zip(folders.values(), parts, strict=True):
        assert streamed(shards, workers, len(own[0])) == own
        assert max(map(len, shards)) <= max(shard_rows, len(own[0]))


@settings(max_examples=150)
@given(plans, st.integers(1, 3), st.sampled_from([1, 10, 25, 1000]))
def test_order_gives_the_parts_of_all_devices_in_turn(plan, workers, shard_rows):
    parts = [part for step in zip(*expected(plan), strict=True) for part in step]
    sizes = [len(part) for part in parts]
    folders, _ = laid_out(plan, "order", workers=workers, shard_rows=shard_rows)
    if folders is None:
        streams = [sizes[worker::workers] for worker in range(workers)]
        short = [stream for stream in streams if min(stream[:-1] or [9]) < max(sizes)]
        assert workers > len(parts) or short
        return
    (shards,) = folders.values()
    assert streamed(shards, workers, max(sizes)) == parts


@settings(max_examples=150)
@given(plans, st.sampled_from([1, 10, 25, 1000]))
def test_strided_gives_row_i_to_device_i_mod_w(plan, shard_rows):
    parts = expected(plan)
    uneven = any(len({len(own[step]) for own in parts}) > 1 for step in range(len(parts[0])))
    folders, said = laid_out(plan, "strided", shard_rows=shard_rows)
    if folders is None:
        assert uneven
        assert "expected equal parts" in said
        return
    (shards,) = folders.values()
    rows = np.concatenate(shards)
    for rank, own in enumerate(parts):
        assert cut(rows[rank :: len(parts)].tolist(), len(own[0])) == own


@settings(max_examples=150)
@given(plans, st.integers(1, 3), st.sampled_from([1, 10, 25, 1000]))
def test_rank_major_gives_each_device_and_worker_a_part(plan, workers, shard_rows):
    parts = expected(plan)
    folders, said = laid_out(plan, "rank-major", workers=workers, shard_rows=shard_rows)
    if folders is None:
        uneven = len({sum(map(len, own)) for own in parts}) > 1
        assert (uneven and "expected equal" in said) or workers > len(parts[0])
        return
    (shards,) = folders.values()
    rows = np.concatenate(shards)
    for own, share in zip(parts, np.split(rows, len(parts)), strict=True):
        lengths = [sum(map(len, own[worker::workers])) for worker in range(workers)]
        streams = np.split(share, np.cumsum(lengths)[:-1])
        assert streamed(streams, workers, len(own[0])) == own


def test_two_workers_of_one_shard_each():
    """`--workers K` alone: batches k, k + K, ... are shard k."""
    plan = plan_of(100, 8)
    batches = [batch.tolist() for batch in plan.batches()]
    (shards,) = lay_out(plan, "order", workers=2, shard_rows=10_000).values()
    assert [shard.tolist() for shard in shards] == [
        np.concatenate(batches[0::2]).tolist(),
        np.concatenate(batches[1::2]).tolist(),
    ]


def test_refusals_say_how_to_mend_it():
    with pytest.raises(InputError, match="expected at most 4, the number of batches"):
        lay_out(plan_of(30, 8), "order", workers=5, shard_rows=8)
    with pytest.raises(InputError, match="with layout strided, expected 1"):
        lay_out(plan_of(30, 8), "strided", workers=2, shard_rows=8)
    uneven = plan_of(70, 8, world_size=4)
    with pytest.raises(InputError, match=r"in step 2, 4 devices have 2 to 1 rows.*--tail drop"):
        lay_out(uneven, "strided", shard_rows=8)
    with pytest.raises(InputError, match="in all, 4 devices have 18 to 17 rows"):
        lay_out(uneven, "rank-major", shard_rows=8)
    with pytest.raises(InputError, match=r"batch 8 has 2 rows and is not the last.*--layout ranks"):
        lay_out(uneven, "order", shard_rows=8)
    assert len(lay_out(uneven, "ranks", shard_rows=8)) == 4
    odd = Plan.from_batches([0, 1, 2, 3, 4, 5, 6], [0, 3, 5, 7], Batching(3), num_rows=7)
    with pytest.raises(InputError, match="rank 0, batch 1 has 2 rows"):
        lay_out(odd, "ranks", shard_rows=8)
