"""Plans of several data sets, joined for each epoch."""

import pickle
from collections import Counter
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

from batchplan import InputError, Plan
from batchplan.consumption.plans import read_plans
from batchplan.training import EpochPlans, MultiDatasetPlans, PlanBatchSampler
from tests.training.test_epochs import everywhere

SIZES = {"a": 50, "b": 20, "c": 85}
BATCH = 8


def vectors(rows):
    return np.random.default_rng(0).standard_normal((1000, 4), np.float32)[rows]


def make(folder, sizes=SIZES, order="proportional", seed=0, **options):
    options = {"planner": "random", "batch_size": BATCH, "rank": 0, "world_size": 1, **options}
    return MultiDatasetPlans(
        {
            name: EpochPlans(folder / name, embed=vectors, num_rows=size, seed=seed, **options)
            for name, size in sizes.items()
        },
        order=order,
        seed=seed,
    )


def steps_of(plan, devices=1):
    """The rows of each step, as sets of a data set and a row in it."""
    ends = np.cumsum(list(SIZES.values())).tolist()
    batches = [plan.rows[start:stop].tolist() for start, stop in pairwise(plan.batch_offsets)]
    steps = [list(chain(*batches[at : at + devices])) for at in range(0, len(batches), devices)]
    named = []
    for rows in steps:
        numbers = {sum(row >= end for end in ends) for row in rows}
        assert len(numbers) == 1  # every step has rows of one data set
        number = numbers.pop()
        first = ends[number] - list(SIZES.values())[number]
        named.append((list(SIZES)[number], [row - first for row in rows]))
    return named


@pytest.mark.parametrize(("devices", "tail"), [(1, "keep"), (2, "pad"), (2, "drop")])
def test_every_step_of_every_plan_once(devices, tail, tmp_path):
    series = [
        make(tmp_path, rank=rank, world_size=devices, tail=tail, timeout=60)
        for rank in range(devices)
    ]
    orders = set()
    for epoch in range(3):
        joined, *others = everywhere(partial(for_epoch, series, epoch), devices)
        assert all(other.digest == joined.digest for other in others)
        steps = steps_of(joined, devices)
        assert len(joined) == series[0].num_batches() == len(steps) * devices
        for name in SIZES:
            own = Plan.load(tmp_path / name / f"plan-000{epoch}.npz")
            assert [rows for other, rows in steps if other == name] == [
                own.rows[start:stop].tolist()
                for start, stop in pairwise(own.batch_offsets[::devices])
            ]
        assert joined.metadata.partitions_rows == (tail == "keep")
        orders.add(tuple(name for name, _ in steps))
    assert len(orders) == 3  # each epoch has its own order of the data sets


def for_epoch(series, epoch, rank):
    return series[rank].for_epoch(epoch)


def test_a_data_set_joined_in_another_order_is_refused(tmp_path):
    """It has as many rows."""
    sets, plans = [range(size) for size in SIZES.values()], make(tmp_path)
    PlanBatchSampler(plans, dataset=ConcatDataset(sets))
    PlanBatchSampler(plans, dataset=ConcatDataset([sets[0][:9], sets[0][9:], *sets[1:]]))
    with pytest.raises(InputError, match=r"end at rows \[85, 105, 155\], but those of"):
        PlanBatchSampler(plans, dataset=ConcatDataset(sets[::-1]))


def test_the_same_seed_gives_the_same_plans(tmp_path):
    digests = [
        make(tmp_path / str(number), seed=seed).for_epoch(1).digest
        for number, seed in enumerate((0, 0, 1))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_round_robin(tmp_path):
    plans = make(tmp_path, order="round_robin")
    names = [name for name, _ in steps_of(plans.for_epoch(0))]
    assert names == list(SIZES) * 3  # the smallest has three batches
    assert plans.num_batches() == 9


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_shares_of_steps(alpha, tmp_path):
    """As many steps as all have, shared by their number to the power of alpha."""
    plans = make(tmp_path, order=alpha)
    steps = {"a": 7, "b": 3, "c": 11}
    whole = sum(steps.values())
    turns = steps_of(plans.for_epoch(0))
    counts = Counter(name for name, _ in turns)
    assert counts.total() == whole == plans.num_batches()
    for name, own in steps.items():
        share = whole * own**alpha / sum(other**alpha for other in steps.values())
        assert abs(counts[name] - share) < 1
    # More turns than steps: the plan again, from its first batch.
    taken = [rows for name, rows in turns if name == "b"]
    assert all(rows == taken[at % 3] for at, rows in enumerate(taken))


def test_a_sampler_goes_on_in_its_epoch(tmp_path):
    begun = PlanBatchSampler(make(tmp_path))
    begun.set_epoch(1)
    all_of_it = list(begun)
    for _, _batch in zip(range(5), begun, strict=False):
        pass
    state = begun.state_dict()
    del begun
    went_on = PlanBatchSampler(make(tmp_path))
    went_on.load_state_dict(state)
    assert list(went_on) == all_of_it[5:]
    state = went_on.state_dict()
    went_on.load_state_dict(state)
    assert (went_on.epoch, went_on.position) == (2, 0)
    with pytest.raises(InputError, match="go on with the plan of the checkpoint"):
        went_on.load_state_dict({**state, "plan": went_on.series.plans["a"].begun(1)})


@pytest.mark.parametrize(
    ("given", "says"),
    [({"order": 0.5}, "whose order is 'proportional', expected 0.5; resume with the order that"),
     ({"seed": 1}, "seed is 0, expected 1")],
)  # fmt: skip
def test_an_epoch_goes_on_in_the_order_that_it_began_with(given, says, tmp_path):
    series = make(tmp_path)
    series.for_epoch(0)
    series.end()
    with pytest.raises(InputError, match=says):
        make(tmp_path, **given).existing(0)
    assert make(tmp_path).existing(0) == series.existing(0)


def test_plans_of_several_data_sets_are_not_taken_for_epochs(tmp_path):
    make(tmp_path).for_epoch(0)
    with pytest.raises(InputError, match=r"Plans of several data sets are joined .*\.save"):
        read_plans([tmp_path])
    with pytest.raises(InputError, match=r"b/plan-0000.npz: is of the same epoch as .*a/plan-0000"):
        read_plans([tmp_path / "a", tmp_path / "b"])
    plan = Plan.load(tmp_path / "a/plan-0000.npz")
    for twin in ("a/rest-0000.npz", "a/plan-0000.npy"):  # also by another name
        plan.save(tmp_path / twin)
        with pytest.raises(InputError, match="is of the same epoch as"):
            read_plans([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(
        InputError, match=r"a/plan-0000.npz: is of the same epoch as .*plan-0000.npy"
    ):
        read_plans([tmp_path / "a"])
    joined = make(tmp_path).existing(0)
    joined.save(tmp_path / "plan-0000.npz")
    assert read_plans([tmp_path]) == {0: joined}


def test_vectors_go_to_their_data_set(tmp_path):
    """The next plan is made from the recorded vectors, and from none of another data set."""
    calls = []

    def embed(rows):
        calls.append(len(rows))
        return vectors(rows)

    options = {"batch_size": BATCH, "rank": 0, "world_size": 1, "embeddings": "training"}
    options["guard"] = True  # so that random batches depend on vectors
    plans = MultiDatasetPlans(
        {
            name: EpochPlans(tmp_path / name, "random", embed=embed, num_rows=size, **options)
            for name, size in SIZES.items()
        }
    )
    sampler = PlanBatchSampler(plans)
    sampler.set_epoch(0)
    assert sum(calls) == sum(SIZES.values())
    for batch in sampler:
        plans.record(batch, np.array(batch)[:, None] * np.ones(4) + 1)
    sampler.set_epoch(1)
    assert sum(calls) == sum(SIZES.values())  # all rows were met
    first = 0
    for own in plans.plans.values():
        (side,) = own._vectors.store.sides
        assert side[:, 0].tolist() == list(range(first + 1, first + own.num_rows + 1))
        first += own.num_rows
    plans.end()


def test_a_step_without_rows_must_have_no_vectors(tmp_path):
    plans = make(tmp_path, embeddings="training")
    plans.for_epoch(0)
    with pytest.raises(InputError, match="rows"):
        plans.record([], np.ones((1, 4)))
    plans.record([], np.ones((0, 4)))
    plans.end()


def test_pickles_without_its_plans(tmp_path):
    plans = make(tmp_path)
    before = plans.for_epoch(0)
    copy = pickle.loads(pickle.dumps(plans))
    copy.resume()
    assert copy.existing(0).digest == before.digest


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sizes": {"a": 50}}, "data sets: got 1, expected at least two"),
        (
            {"order": "random"},
            "order: got 'random', expected proportional or round_robin or a number",
        ),
        ({"order": 1.5}, "order: got 1.5, expected a finite number from 0 to 1"),
        ({"order": float("nan")}, "order: got nan"),
    ],
)
def test_refusals(options, says, tmp_path):
    with pytest.raises(InputError, match=says):
        make(tmp_path, **options)


def test_plans_that_are_cut_in_other_ways_are_refused(tmp_path):
    options = {"embed": vectors, "num_rows": 50, "planner": "random", "rank": 0, "world_size": 1}
    sets = {
        str(size): EpochPlans(tmp_path / str(size), batch_size=size, **options) for size in (4, 8)
    }
    with pytest.raises(InputError, match=r"8: its plans have .*batch_size=8.*but plans of 4 have"):
        MultiDatasetPlans(sets)


@pytest.mark.parametrize(("random_epochs", "share"), [(0, 27), (0.5, 14)])
def test_what_an_epoch_of_all_costs_is_one_line(random_epochs, share, tmp_path, caplog):
    logged, embedded = [], []

    def embed(rows):
        logged.append([line for line in caplog.messages if "embedding" in line])
        embedded.extend(rows.tolist())
        return vectors(rows), vectors(rows)

    plans = MultiDatasetPlans({
        name: EpochPlans(
            tmp_path / name, embed=embed, num_rows=size, batch_size=BATCH, rank=0, world_size=1,
            random_epochs=random_epochs, mega_batches=1,
        )
        for name, size in SIZES.items()
    })  # fmt: skip
    list(PlanBatchSampler(plans))
    rows = len(embedded)
    said = [f"epoch 0: embedding {rows} of 155 rows takes about {share}% of an epoch"]
    assert logged == [said] * len(SIZES)
    assert rows == 155 if not random_epochs else 80 <= rows <= 100
    figures = [own.figures["embedded_rows"] for own in plans.plans.values()]
    assert sum(figures) == rows
