"""partition: harder batches than others make, and what its options do to them."""

import numpy as np
import pytest

from batchplan import InputError, evaluate
from batchplan.data import Embeddings
from batchplan.planners import plan
from batchplan.planners.partition.options import PartitionOptions
from batchplan.runtime import Runtime
from tests.dense import similarities

DEAL = 8  # the stream of mega-batches


def made(embeddings, **options):
    """The hardest batches of 8, but for options that make them milder."""
    hardest = {"batch_size": 8, "guard": False, "mega_batches": 1}
    return plan(embeddings, planner="partition", device="cpu", **{**hardest, **options})


def batches(one):
    return [frozenset(batch.tolist()) for batch in one.batches()]


def measured(one, embeddings):
    return evaluate(one, embeddings, random_trials=3)


@pytest.mark.parametrize(("count", "size"), [(12, 16), (5, 40)])
def test_planted_clusters_are_found(planted, count, size):
    embeddings, labels = planted(count, size)
    for refine in (0, 4):
        found = made(embeddings, batch_size=size, refine=refine)
        assert all(len(set(labels[batch])) == 1 for batch in found.batches())


def test_harder_than_other_planners(planted):
    """On clusters of 37, which are no batches, and blurred."""
    embeddings, _ = planted(11, 37, spread=0.6)
    share = {}
    for name in ("partition", "gcbs", "knn", "cluster", "bcs", "scb"):
        more = {"guard": False, "mega_batches": 1} if name == "partition" else {}
        one = plan(embeddings, planner=name, device="cpu", batch_size=16, **more)
        share[name] = measured(one, embeddings).gap_reduction
    best = share.pop("partition")
    assert best > max(share.values()) > 0


def test_the_metrics_and_the_dial(make):
    embeddings = make(300)
    found = [made(embeddings, refine=refine) for refine in (0, 1, 6)]
    losses = [measured(one, embeddings).loss_train for one in found]
    assert losses == sorted(losses)
    assert losses[0] < losses[1]
    for one, loss in zip(found, losses, strict=True):
        rise = one.metadata.metrics["refine_gain"]
        assert rise == pytest.approx(loss - losses[0], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_matter(use_threads, make, threads):
    embeddings = make(500)
    one = made(embeddings, guard=True)
    use_threads(threads)
    other = made(embeddings, guard=True)
    assert np.array_equal(one.rows, other.rows)
    assert one.metadata == other.metadata


def test_the_guard_counts_what_it_cannot_part(make):
    """Against the definitions in float64, with no pair that is nearly too similar."""
    embeddings = make(120)
    S = similarities(embeddings)
    own = np.diag(S)
    ceilings = 0.3 * np.maximum(own, sorted(own)[(len(own) - 1) // 2])
    bad = np.maximum(S, S.T) >= np.minimum(ceilings[:, None], ceilings)
    strict, free, priced = (
        made(embeddings, guard=True, relative_margin=0.7, **more)
        for more in ({"guard_penalty": np.inf}, {"guard_penalty": 0.0}, {"guard_penalty": 0.003})
    )

    def inside(one):
        return sum(np.triu(bad[np.ix_(rows, rows)], 1).sum() for rows in one.batches())

    for one in (strict, free, priced):
        assert one.metadata.metrics["broken_pairs"] == inside(one)
    assert inside(strict) < inside(priced) < inside(free)
    assert inside(free) < inside(made(embeddings)) / 2


def test_mega_batches(make):
    """Batches are made within each; with another seed other rows meet."""
    embeddings = make(240)
    found = made(embeddings, mega_batches=3, seed=2)
    assert sorted(found.rows) == list(range(240))
    assert found.metadata.options["mega_batches"] == 3
    again, other = (made(embeddings, mega_batches=3, seed=seed) for seed in (2, 3))
    assert batches(again) == batches(found)
    assert len(set(batches(other)) & set(batches(found))) < 3
    dealt = Runtime(device="cpu", seed=2).generator(DEAL).permutation(240).reshape(3, 80)
    homes = [sum(batch <= set(rows.tolist()) for rows in dealt) for batch in batches(found)]
    assert homes == [1] * 30


def test_more_mega_batches_are_milder(make):
    embeddings = make(480)
    losses = [
        measured(made(embeddings, mega_batches=count), embeddings).loss_train
        for count in (1, 2, 4, 30)
    ]
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 4
    most, too_many = (made(embeddings, mega_batches=k) for k in (30, 99))
    assert batches(most) == batches(too_many)
    few = make(24)
    assert batches(made(few, mega_batches=2)) == batches(made(few))


def test_how_many_mega_batches(make):
    """At least two, and as many as keep them at a number of rows."""
    counts = [PartitionOptions().count_for(n) for n in (2, 1000, 131_072, 131_073, 10**7)]
    assert counts == [2, 2, 2, 3, 153]
    rows = PartitionOptions(mega_batch_rows=100)
    assert [rows.count_for(n) for n in (2, 100, 101, 1000)] == [1, 1, 2, 10]
    assert PartitionOptions(mega_batches=3).count_for(10**7) == 3
    embeddings = make(240)
    three, same = (
        made(embeddings, **{"mega_batches": None, **more})
        for more in ({"mega_batches": 3}, {"mega_batch_rows": 100})
    )
    assert batches(three) == batches(same)
    assert three.metadata.metrics["mega_batches"] == 3
    with pytest.raises(InputError, match="mega-batches: got 3 with --mega-batch-rows 100; leave"):
        made(embeddings, mega_batches=3, mega_batch_rows=100)


def test_a_row_of_zeros_has_the_number_that_the_user_knows():
    x = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    x[237] = 0
    with pytest.raises(InputError, match="row 237"):
        made(Embeddings.from_arrays(x), mega_batches=2)


def test_batches_come_in_no_order_of_likeness(make):
    """Unless asked for: training on batches of like rows in turn is worse (docs/training.md)."""
    found, in_order = made(make(120)), made(make(120), batch_order="planned")
    assert sorted(map(sorted, batches(found))) == sorted(map(sorted, batches(in_order)))
    assert batches(found) != batches(in_order)


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
@pytest.mark.parametrize("scope", ["device", "global"])
@pytest.mark.parametrize("more", [{}, {"mega_batches": 3}])
def test_several_devices(make, scope, tail, more):
    embeddings = make(103)
    found = made(embeddings, world_size=3, scope=scope, tail=tail, **more)
    size, count = (8, 12) if scope == "device" else (24, 4)
    sizes = np.diff(found.batch_offsets)
    last = {"drop": [], "pad": [8] * 3 if scope == "device" else [24], "keep": [3, 2, 2]}[tail]
    if tail == "keep" and scope == "global":
        last = [7]
    assert sizes.tolist() == [size] * count + last
    assert (sorted(found.rows) == list(range(103))) == (tail == "keep")
    assert found.metadata.options["refine"] == PartitionOptions().refine == 1


def test_few_rows():
    for n in (2, 3, 5):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        for options in (
            {},
            {"guard": True},
            {"mega_batches": 2},
        ):
            found = made(Embeddings.from_arrays(x), batch_size=2, **options)
            assert sorted(found.rows) == list(range(n))
