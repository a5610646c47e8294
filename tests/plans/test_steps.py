"""Plans for several devices: how they are cut, what files keep of them, what is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.plans import Batching, Plan

SCOPES = ("device", "global")
TAILS = ("keep", "drop", "pad")

SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")


def cut(order, batch_size, generator=None, **options):
    return Plan.cut(
        order, Batching(batch_size, **options), num_rows=len(order), generator=generator
    )


def batches(plan):
    return [batch.tolist() for batch in plan.batches()]


def dealt(rows, parts):
    """Contiguous parts whose sizes come from dealing the rows out one by one."""
    sizes = [0] * parts
    for number in range(len(rows)):
        sizes[number % parts] += 1
    rest = iter(rows)
    return [[next(rest) for _ in range(size)] for size in sizes]


def by_hand(order, size, devices, scope, tail):
    """The batches of an order, taken step by step; ``size`` rows are contrasted together."""
    at_once = devices if scope == "device" else 1
    rest, made = list(order), []
    while len(rest) >= size * at_once:
        for _ in range(at_once):
            made.append(rest[:size])
            del rest[:size]
    if rest and tail == "keep":
        made += dealt(rest, at_once)
    elif rest and tail == "pad":
        rest = list(order)[len(order) - size * at_once :]
        made += [rest[i * size : (i + 1) * size] for i in range(at_once)]
    return made


def test_a_step_of_device_batches():
    order = list(range(11))
    keep, drop, pad = (cut(order, 2, world_size=3, tail=tail) for tail in TAILS)
    assert batches(keep) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]
    assert batches(drop) == [[0, 1], [2, 3], [4, 5]]
    assert batches(pad) == [[0, 1], [2, 3], [4, 5], [5, 6], [7, 8], [9, 10]]


def test_a_step_is_shared_as_evenly_as_possible():
    plan = cut(range(21), 4, world_size=3)
    assert batches(plan)[3:] == [[12, 13, 14], [15, 16, 17], [18, 19, 20]]
    assert plan.metadata.partitions_rows
    assert (plan.metadata.world_size, plan.metadata.scope, plan.batch_size) == (3, "device", 4)


def test_a_batch_that_all_devices_share():
    keep, drop, pad = (cut(range(10), 4, world_size=2, scope="global", tail=t) for t in TAILS)
    assert batches(keep) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches(drop) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches(pad) == [[0, 1, 2, 3], [4, 5, 6, 7], [6, 7, 8, 9]]
    assert keep.metadata.scope == "global"


@pytest.mark.parametrize("tail", TAILS)
def test_shuffling_leaves_the_last_step_last(tail):
    order = np.random.default_rng(1).permutation(131)
    generator = np.random.Generator(np.random.Philox(0))
    options = {"world_size": 4, "tail": tail}
    planned = batches(cut(order, 5, **options))
    mixed = batches(cut(order, 5, batch_order="shuffled", generator=generator, **options))
    assert mixed != planned
    assert sorted(mixed) == sorted(planned)
    if tail != "drop":
        assert mixed[-4:] == planned[-4:]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), tail=st.sampled_from(TAILS), scope=st.sampled_from(SCOPES))
def test_every_cut_is_the_one_by_hand(data, tail, scope):
    num_rows = data.draw(st.integers(2, 70))
    size = data.draw(st.integers(2, num_rows))
    devices = data.draw(st.integers(1, num_rows // size if scope == "device" else size))
    order = np.random.default_rng(num_rows).permutation(num_rows).tolist()
    options = {"world_size": devices, "scope": scope, "tail": tail}
    left = num_rows % (size * (devices if scope == "device" else 1))
    if tail == "keep" and 0 < left < devices:
        with pytest.raises(InputError, match=f"{left} rows are left .* of {devices} devices"):
            cut(order, size, **options)
        return
    plan = cut(order, size, **options)
    assert batches(plan) == by_hand(order, size, devices, scope, tail)
    assert all(len(set(batch)) == len(batch) for batch in batches(plan))
    assert plan.metadata.partitions_rows == (sorted(plan.rows) == list(range(num_rows)))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("tail", TAILS)
def test_saved_and_loaded(tmp_path, suffix, scope, tail):
    plan = cut(np.random.default_rng(3).permutation(59), 6, world_size=3, scope=scope, tail=tail)
    plan.save(tmp_path / f"plan{suffix}")
    loaded = Plan.load(tmp_path / f"plan{suffix}")
    assert batches(loaded) == batches(plan)
    assert loaded.metadata == plan.metadata


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"world_size": 0}, "world size: got 0, expected a number of at least 1"),
        ({"scope": "node"}, "scope: got 'node', expected device or global"),
        (
            {"world_size": 3},
            "3 devices with batches of 4 take 12 rows per step, expected",
        ),
        (
            {"batch_size": 5, "world_size": 2},
            "1 rows are left for the last step of 2 devices, expected at least one for each; use "
            "--tail drop or --tail pad",
        ),
        ({"batch_size": 9, "world_size": 3, "scope": "global"}, "2 rows are left for the last"),
    ],
)
def test_cuts_that_are_refused(options, says):
    with pytest.raises(InputError) as error:
        cut(range(11), **{"batch_size": 4, **options})
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("offsets", "options", "says"),
    [
        ([0, 2, 4, 6], {"world_size": 2}, "3 batches for 2 devices, expected a multiple of 2"),
        (
            [0, 3, 6],
            {"world_size": 4, "scope": "global"},
            "batch 0 has 3 rows for 4 devices, expected at least one for each",
        ),
        ([0, 2, 4, 6], {"world_size": -1}, "world size: got -1"),
        ([0, 2, 4, 6], {"scope": ""}, "scope: got ''"),
    ],
)
def test_batches_that_are_no_steps(offsets, options, says):
    with pytest.raises(InputError) as error:
        Plan.from_batches(range(6), offsets, Batching(3, **options), num_rows=6)
    assert says in str(error.value)


def test_batches_that_are_steps():
    plan = Plan.from_batches(range(6), [0, 2, 3, 4, 6], Batching(2, world_size=2), num_rows=6)
    assert (plan.metadata.world_size, plan.metadata.partitions_rows) == (2, True)


@pytest.mark.parametrize(
    ("scope", "devices", "says"),
    [
        ("device", 2, "5 batches for 2 devices, expected a multiple of 2; plan again with"),
        ("device", 10**30, "expected a multiple of"),
        ("global", 3, "batch 4 has 2 rows for 3 devices"),
        ("node", 1, "scope: got 'node', expected device or global"),
        ("device", "2", "world size: got '2', expected an integer"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".jsonl"])
def test_files_that_claim_what_they_do_not_hold(tmp_path, refused, suffix, scope, devices, says):
    path = tmp_path / f"plan{suffix}"
    cut(range(18), 4).save(path)
    sidecar = tmp_path / f"plan{suffix}.json"
    document = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps({**document, "scope": scope, "world_size": devices}))
    refused(path, says)


def test_a_file_of_before_there_were_devices_loads(tmp_path):
    """Metadata always had the two fields, at what they still are for one device."""
    cut(range(18), 4).save(tmp_path / "plan.npy")
    document = json.loads((tmp_path / "plan.npy.json").read_text())
    assert (document["scope"], document["world_size"]) == ("device", 1)
    document["options"] = {"batch_size": 4, "tail": "keep"}
    (tmp_path / "plan.npy.json").write_text(json.dumps(document))
    assert Plan.load(tmp_path / "plan.npy").num_batches == 5
