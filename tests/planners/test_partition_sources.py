"""Batches of one source, or with their share of each."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError
from batchplan.planners import plan

SIZES = {"a": 53, "b": 34, "c": 21, None: 12}


@pytest.fixture
def sources(tmp_path):
    """A function that writes a source for each row, and the options that name them."""

    def of(sizes=SIZES, seed=0, **more):
        names = [name for name, size in sizes.items() for _ in range(size)]
        mixed = np.random.default_rng(seed).permutation(np.arange(len(names)))
        names = [names[k] for k in mixed]
        path = tmp_path / "sources.parquet"
        pq.write_table(pa.table({"source": pa.array(names, pa.string())}), path)
        options = {"source_column": "source", "label_table": str(path), "guard": False, **more}
        return np.array([str(name) for name in names]), options

    return of


def made(embeddings, **options):
    return plan(embeddings, planner="partition", device="cpu", **{"batch_size": 8, **options})


def names_of(found, names):
    """The source of each batch, each of which has one."""
    inside = [set(names[batch]) for batch in found.batches()]
    assert all(len(one) == 1 for one in inside)
    return np.array([one.pop() for one in inside])


def check_spread(order):
    """The batches of every source come at an even pace."""
    for name in set(order):
        so_far = np.cumsum(order == name)
        even = (order == name).sum() * np.arange(1, len(order) + 1) / len(order)
        assert np.abs(so_far - even).max() <= 1 + len(set(order)) / 2


@pytest.mark.parametrize(
    "more",
    [{}, {"refine": 0}, {"mega_batches": 1}],
)
@pytest.mark.parametrize("batch_order", ["planned", "shuffled"])
@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_one_source_a_batch(make, sources, tail, batch_order, more):
    names, options = sources(tail=tail, batch_order=batch_order, **more)
    found = made(make(120), **options)
    of_batch, sizes = names_of(found, names), np.diff(found.batch_offsets)
    check_spread(of_batch)
    for name, size in {"a": 53, "b": 34, "c": 21, "None": 12}.items():
        full, left = divmod(size, 8)
        last = {"keep": [left] if left else [], "drop": [], "pad": [8] if left else []}[tail]
        assert sizes[of_batch == name].tolist() == [8] * full + last
    assert (sorted(found.rows) == list(range(120))) == (tail == "keep")
    assert all(len(set(batch.tolist())) == len(batch) for batch in found.batches())
    if tail == "pad":
        assert set(found.rows.tolist()) == set(range(120))
    if tail == "drop":
        assert len(set(found.rows.tolist())) == len(found.rows) == 6 * 8 + 4 * 8 + 2 * 8 + 8


def test_shuffled_batches_are_the_same_batches(make, sources):
    _, options = sources()
    planned, shuffled = (
        [batch.tolist() for batch in made(make(120), **options, batch_order=order).batches()]
        for order in ("planned", "shuffled")
    )
    assert sorted(planned) == sorted(shuffled)
    assert planned != shuffled


def test_one_source_in_all(make, sources):
    _, options = sources({"a": 90})
    alone = made(make(90), **options)
    assert np.array_equal(alone.rows, made(make(90), guard=False).rows)


def test_sources_of_a_row_or_two(make, sources):
    names, options = sources({"a": 50, "b": 1, "c": 2, "d": 7})
    found = made(make(60), **options)
    assert len(names_of(found, names)) == 7 + 3
    assert sorted(found.rows) == list(range(60))
    with pytest.raises(InputError, match=r"tail: got pad, but a source has \d rows, expected at l"):
        made(make(60), **options, tail="pad")
    assert len(made(make(60), **options, tail="drop").rows) == 48


def test_no_source_fills_a_batch(make, sources):
    _, options = sources({"a": 20, "b": 25})
    with pytest.raises(InputError, match="tail: got drop, but no source has 30 rows"):
        made(make(45), **options, batch_size=30, tail="drop")
    assert made(make(45), **options, batch_size=30).num_batches == 2


@pytest.mark.parametrize("devices", [2, 3, 5])
def test_devices_take_batches_of_sources(make, sources, devices):
    names, options = sources()
    count = 7 + 5 + 3 + 2
    with pytest.raises(InputError) as error:
        made(make(120), **options, world_size=devices)
    assert str(error.value) == (
        f"world size: got {devices} devices for the {count} batches of all sources, expected a "
        "divisor, or --tail drop or pad, which make whole steps"
    )
    for tail, whole in (("drop", 13 // devices), ("pad", -(-count // devices))):
        found = made(make(120), **options, world_size=devices, tail=tail)
        names_of(found, names)
        assert np.diff(found.batch_offsets).tolist() == [8] * whole * devices
    shared = made(make(120), **options, world_size=devices, scope="global", tail="drop",
                  batch_size=4)  # fmt: skip
    assert set(np.diff(shared.batch_offsets).tolist()) == {4 * devices}
    names_of(shared, names)


@pytest.mark.parametrize("more", [{}, {"world_size": 2}, {"tail": "drop"},
                                  {"refine": 0}, {"batch_size": 30}])  # fmt: skip
def test_shares_of_each_source(make, sources, more):
    names, options = sources(source_mix="proportional", **more)
    found = made(make(120), **options)
    for batch in found.batches():
        for name, size in {"a": 53, "b": 34, "c": 21, "None": 12}.items():
            assert abs((names[batch] == name).sum() - len(batch) * size / 120) < 2
    if "tail" not in more:
        assert sorted(found.rows) == list(range(120))


def test_shares_leave_room_for_similar_rows(planted, sources):
    """Rows of a cluster come together as far as the shares let them."""
    embeddings, labels = planted(15, 8)
    _, options = sources({"a": 80, "b": 40}, source_mix="proportional")
    found = made(embeddings, **options)
    inside = [np.bincount(labels[batch]).max() for batch in found.batches()]
    assert np.mean(inside) > 4


def test_groups_and_sources(make, sources):
    """Groups are kept apart within the batches of a source."""
    names, options = sources({"a": 64, "b": 56})
    table = pq.read_table(options["label_table"])
    groups = np.arange(120) // 3
    pq.write_table(table.append_column("group", pa.array(groups)), options["label_table"])
    for mix in ("one", "proportional"):
        found = made(make(120), **options, group_column="group", source_mix=mix)
        assert found.metadata.metrics["broken_pairs"] == 0
        assert all(len(set(groups[batch])) == len(batch) for batch in found.batches())
        if mix == "one":
            names_of(found, names)


def test_no_such_column(make, sources):
    _, options = sources()
    with pytest.raises(InputError, match="nowhere"):
        made(make(120), **{**options, "source_column": "nowhere"})
    with pytest.raises(InputError, match="hold no columns"):
        made(make(120), source_column="source")
    with pytest.raises(InputError, match="121"):
        made(make(121), **options)
