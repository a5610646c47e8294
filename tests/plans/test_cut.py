"""Cutting an order of rows into batches."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.plans import Batching, Plan

BATCH_ORDERS = ("planned", "shuffled")
TAILS = ("keep", "drop", "pad")


def philox(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def cut(order, batch_size, generator=None, fingerprint=None, **options):
    return Plan.cut(
        order,
        Batching(batch_size, **options),
        num_rows=len(order),
        generator=generator,
        fingerprint=fingerprint,
    )


def batches(plan):
    return [batch.tolist() for batch in plan.batches()]


def test_keep_makes_a_short_last_batch():
    plan = cut([4, 2, 0, 1, 3], 2)
    assert batches(plan) == [[4, 2], [0, 1], [3]]
    assert plan.metadata.partitions_rows
    assert (len(plan), plan.num_batches, plan.batch_size) == (3, 3, 2)
    assert plan.batch_of_entry().tolist() == [0, 0, 1, 1, 2]


def test_drop_leaves_the_last_rows_out():
    plan = cut([4, 2, 0, 1, 3], 2, tail="drop")
    assert batches(plan) == [[4, 2], [0, 1]]
    assert not plan.metadata.partitions_rows


def test_pad_fills_the_last_batch_with_the_rows_just_before_it():
    plan = cut([4, 2, 0, 1, 3, 5, 6], 3, tail="pad")
    assert batches(plan) == [[4, 2, 0], [1, 3, 5], [3, 5, 6]]
    assert not plan.metadata.partitions_rows


@pytest.mark.parametrize("tail", TAILS)
def test_the_tail_does_not_matter_where_batches_divide_the_rows(tail):
    plan = cut([3, 2, 1, 0], 2, tail=tail)
    assert batches(plan) == [[3, 2], [1, 0]]
    assert plan.metadata.partitions_rows


@pytest.mark.parametrize("tail", TAILS)
def test_shuffling_moves_whole_batches_and_leaves_the_odd_one_last(tail):
    order = philox(1).permutation(103)
    planned = cut(order, 10, tail=tail)
    shuffled = cut(order, 10, tail=tail, batch_order="shuffled", generator=philox())
    assert batches(shuffled) != batches(planned)
    assert sorted(batches(shuffled)) == sorted(batches(planned))
    if tail != "drop":
        assert batches(shuffled)[-1] == batches(planned)[-1]


@settings(max_examples=50, deadline=None)
@given(
    num_rows=st.integers(2, 60),
    data=st.data(),
    tail=st.sampled_from(TAILS),
    batch_order=st.sampled_from(BATCH_ORDERS),
)
def test_every_cut_obeys_its_rules(num_rows, data, tail, batch_order):
    batch_size = data.draw(st.integers(2, num_rows))
    order = data.draw(st.permutations(range(num_rows)))
    plan = cut(order, batch_size, tail=tail, batch_order=batch_order, generator=philox())
    full, left = divmod(num_rows, batch_size)
    sizes = np.diff(plan.batch_offsets).tolist()
    odd = {"keep": [left], "drop": [], "pad": [batch_size]}[tail] if left else []
    assert sizes == [batch_size] * full + odd
    assert all(len(set(batch)) == len(batch) for batch in batches(plan))
    seen = set(plan.rows.tolist())
    assert seen == set(order) - (set(order[full * batch_size :]) if tail == "drop" else set())
    assert plan.metadata.partitions_rows == (sorted(plan.rows) == list(range(num_rows)))


def test_a_plan_is_read_only_and_does_not_share_the_order():
    order = np.arange(6)
    plan = cut(order, 3)
    order[:] = 0
    assert plan.rows.tolist() == [0, 1, 2, 3, 4, 5]
    for array in (plan.rows, plan.batch_offsets, next(plan.batches())):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    copy = pickle.loads(pickle.dumps(plan))
    assert batches(copy) == batches(plan)
    assert not copy.rows.flags.writeable


@pytest.mark.parametrize("batch_size", [-1, 0, 1, 2.0, "2"])
def test_batch_size_that_is_none(batch_size):
    with pytest.raises(InputError, match=f"batch size: got {batch_size!r}, expected a"):
        cut(range(5), batch_size)


def test_batch_larger_than_the_data():
    with pytest.raises(InputError, match="batches of 6 take 6 rows per step, expected at most 5"):
        cut(range(5), 6)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1, 2, 2], "1 rows repeated and 1 missing, expected each of 4 rows once"),
        ([0, 1, 2], "0 rows repeated and 1 missing"),
        ([0, 1, 2, 4], "1 row numbers outside 0 to 3, the first is 4 at position 3"),
        ([0, -1, 2, 3], "the first is -1 at position 1"),
        ([0.0, 1.0, 2.0, 3.0], "got float64 of shape (4,), expected integers"),
        ([[0, 1], [2, 3]], "of shape (2, 2), expected integers in one dimension"),
    ],
)
def test_an_order_that_is_no_permutation(order, message):
    with pytest.raises(InputError) as error:
        Plan.cut(order, Batching(2), num_rows=4)
    assert message in str(error.value)


def test_unknown_choices():
    with pytest.raises(InputError, match="tail: got 'wrap', expected keep or drop or pad"):
        cut(range(4), 2, tail="wrap")
    with pytest.raises(InputError, match="batch order: got 'random', expected planned or shuffled"):
        cut(range(4), 2, batch_order="random")
    with pytest.raises(InputError, match="needs a random generator"):
        cut(range(4), 2, batch_order="shuffled")


def test_require_match():
    plan = cut(range(4), 2, fingerprint="abc")
    plan.require_match(4, "abc")
    plan.require_match(4, None)
    cut(range(4), 2).require_match(4, "abc")
    with pytest.raises(InputError, match="made for 4 rows, got data of 5"):
        plan.require_match(5, "abc")
    with pytest.raises(InputError, match="fingerprint abc, got abd"):
        plan.require_match(4, "abd")
