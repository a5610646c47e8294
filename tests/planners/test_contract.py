"""What every planner promises. A planner that joins the registry is tested here as it is."""

from dataclasses import asdict, fields
from itertools import cycle

import numpy as np
import pytest

from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.planners import PLANNERS, plan, run_planner
from batchplan.planners.common.options import PlannerOptions
from batchplan.plans import Plan
from batchplan.runtime import Runtime

TAILS = ("keep", "drop", "pad")

# These make tables of negatives unless told otherwise. As batches they are sampling planners, with
# one negative an anchor so that the smallest batches below have room.
AS_BATCHES = {"hardneg": {"as_batches": True}, "scns": {"as_batches": True, "per_row": 1}}


@pytest.fixture(params=PLANNERS)
def planner(request):
    return request.param


def make_plan(planner, embeddings, **options):
    options = {"device": "cpu", **AS_BATCHES.get(planner, {}), **options}
    return plan(embeddings, planner=planner, **options)


def options_of(planner, **options):
    return PLANNERS[planner].options(**AS_BATCHES.get(planner, {}) | options)


def check(made, embeddings, batch_size, tail="keep"):
    """Require batches of the right sizes, of distinct rows, and the promised partition."""
    n = embeddings.num_rows
    assert isinstance(made, Plan)
    assert made.rows.dtype == made.batch_offsets.dtype == np.int64
    assert (made.metadata.num_rows, made.batch_size) == (n, batch_size)
    assert made.batch_offsets[0] == 0
    assert made.batch_offsets[-1] == len(made.rows)
    assert made.rows.min() >= 0
    assert made.rows.max() < n
    for batch in made.batches():
        assert len(set(batch.tolist())) == len(batch)
    partitions = np.array_equal(np.sort(made.rows), np.arange(n))
    assert made.metadata.partitions_rows == partitions
    sizes = np.diff(made.batch_offsets).tolist()
    full, left = divmod(n, batch_size)
    if made.metadata.partitions_rows:
        assert sizes == [batch_size] * full + [left] * bool(left)
    elif tail == "drop":
        assert sizes == [batch_size] * len(sizes)
    else:
        assert set(sizes[:-1]) <= {batch_size}
        assert 0 < sizes[-1] <= batch_size


def saved(made, path):
    made.save(path, force=True)
    return path.read_bytes()


def test_any_data(planner, embeddings, tmp_path):
    """Batches as promised, with the same bytes whenever they are planned."""
    options = {"batch_size": 8, "seed": 5}
    one = make_plan(planner, embeddings, **options)
    np.random.seed(1)  # noqa: NPY002  (no planner may look at it)
    again = make_plan(planner, embeddings, **options)
    check(one, embeddings, 8)
    assert saved(again, tmp_path / "again.npz") == saved(one, tmp_path / "one.npz")
    check(make_plan(planner, embeddings, similarity="dot", **options), embeddings, 8)


@pytest.mark.parametrize(
    ("n", "batch_size"),
    [(2, 2), (3, 2), (5, 5), (64, 64), (64, 8), (65, 8), (71, 8), (70, 69), (33, 32)],
)
def test_sizes(planner, make, n, batch_size):
    embeddings = make(n, np.float16 if n == 65 else np.float32)
    for tail in TAILS:
        made = make_plan(planner, embeddings, batch_size=batch_size, tail=tail)
        check(made, embeddings, batch_size, tail)


def test_tails(planner, make):
    embeddings = make(45)
    keep, drop, pad = (
        make_plan(planner, embeddings, batch_size=8, tail=t, batch_order="planned") for t in TAILS
    )
    if not keep.metadata.partitions_rows:
        pytest.skip("does not partition the rows, so it has no tail")
    assert np.array_equal(drop.rows, keep.rows[:40])
    assert np.array_equal(pad.rows, np.concatenate([keep.rows[:40], keep.rows[-8:]]))
    assert [keep.num_batches, drop.num_batches, pad.num_batches] == [6, 5, 6]
    assert not drop.metadata.partitions_rows
    assert not pad.metadata.partitions_rows


@pytest.mark.parametrize(("planner", "tail"), list(zip(PLANNERS, cycle(TAILS), strict=False)))
def test_shuffled_batches_keep_their_rows(planner, make, tail, tmp_path):
    embeddings = make(165)
    planned, shuffled, other = (
        make_plan(planner, embeddings, batch_size=8, tail=tail, **options)
        for options in (
            {"batch_order": "planned"},
            {"batch_order": "shuffled"},
            {"batch_order": "shuffled", "seed": 1},
        )
    )
    for one in (planned, shuffled):
        order = one.metadata.batch_order
        again = make_plan(planner, embeddings, batch_size=8, tail=tail, batch_order=order)
        assert saved(again, tmp_path / "again.npz") == saved(one, tmp_path / "one.npz")
    batches = [tuple(batch) for batch in planned.batches()]
    mixed = [tuple(batch) for batch in shuffled.batches()]
    assert sorted(batches) == sorted(mixed)
    assert batches != mixed
    assert not np.array_equal(shuffled.rows, other.rows)
    partitions = make_plan(planner, embeddings, batch_size=8).metadata.partitions_rows
    if tail != "drop" and partitions:  # a sampling plan has no tail that has to stay the last
        assert mixed[-1] == batches[-1]


def test_saved_and_loaded(planner, make, tmp_path):
    made = make_plan(planner, make(45), batch_size=8)
    made.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
    assert np.array_equal(loaded.rows, made.rows)
    assert loaded.metadata == made.metadata


def test_inputs_are_untouched(planner):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((40, 6)).astype(np.float32) for _ in range(2))
    before = x.copy(), y.copy()
    make_plan(planner, Embeddings.from_arrays(x, y), batch_size=8)
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])


def test_metadata(planner, make):
    embeddings = make(45)
    made = make_plan(planner, embeddings, batch_size=9, seed=7, tail="pad").metadata
    options = options_of(planner, batch_size=9, tail="pad")
    assert made.planner == planner
    running = {"ray", "resume"}  # where and how it ran, which changes no plan
    assert made.options == {k: v for k, v in asdict(options).items() if k not in running}
    assert made.seed == 7
    assert made.fingerprint == embeddings.fingerprint
    assert (made.tail, made.batch_order) == ("pad", options.batch_order)
    assert {"batchplan", "numpy", "python", "torch"} <= set(made.versions)


def test_options_rebuild_the_plan(planner, make):
    """The metadata are enough to make the same plan again."""
    embeddings = make(45)
    first = make_plan(planner, embeddings, batch_size=9, seed=7, batch_order="shuffled")
    again = make_plan(planner, embeddings, seed=first.metadata.seed, **first.metadata.options)
    assert np.array_equal(first.rows, again.rows)


def test_rows_of_zeros(planner):
    """A planner either does not look at similarities, or refuses what has no cosine."""
    x = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    x[11] = 0
    embeddings = Embeddings.from_arrays(x)
    others = Embeddings.from_arrays(np.random.default_rng(1).random((40, 6), dtype=np.float32))
    try:
        made = make_plan(planner, embeddings, batch_size=8)
    except InputError as error:
        refusal = str(error)
    else:
        # It plans other vectors alike, so it cannot have looked at them.
        assert np.array_equal(made.rows, make_plan(planner, others, batch_size=8).rows)
        refusal = "zeros, row 11"
    assert "zeros" in refusal
    assert "row 11" in refusal
    check(make_plan(planner, embeddings, batch_size=8, similarity="dot"), embeddings, 8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("similarity", "length"), [("dot", 1e19), ("cosine", 3.1e38)])
def test_rows_too_long_for_float32(planner, similarity, length):
    """A planner either does not look at similarities, or says which rows make them overflow."""
    x, y = np.random.default_rng(0).standard_normal((2, 40, 6))
    y[11] *= length / np.linalg.norm(y[11])
    embeddings = Embeddings.from_arrays(x.astype(np.float32), y.astype(np.float32))
    others = Embeddings.from_arrays(np.random.default_rng(1).random((40, 6), dtype=np.float32))
    options = {"batch_size": 8, "similarity": similarity}
    try:
        made = make_plan(planner, embeddings, **options)
    except InputError as error:
        said = str(error)
        assert said.startswith(f"y: got 1 rows of length up to {length:.1e} (y array row 11)")
        assert f"for {similarity} similarity, or float32 (largest 3.4e+38) overflows" in said
    else:
        assert np.array_equal(made.rows, make_plan(planner, others, **options).rows)


@pytest.mark.filterwarnings("error")
def test_rows_nearly_too_long_for_float32(planner):
    x = np.random.default_rng(0).standard_normal((2, 40, 6))
    x *= 2.99e18 / np.linalg.norm(x, axis=2, keepdims=True)
    embeddings = Embeddings.from_arrays(*x.astype(np.float32))
    check(make_plan(planner, embeddings, batch_size=8, similarity="dot"), embeddings, 8)


REFUSALS = [
    ({"batch_size": 1}, "batch size: got 1, expected a number of at least 2"),
    ({"batch_size": -4}, "batch size: got -4, expected a number of at least 2"),
    ({"batch_size": 46}, "batch size: got 46, expected at most the 45 rows"),
    ({"world_size": 0}, "world size: got 0, expected a number of at least 1"),
    ({"world_size": "2"}, "world size: got '2', expected an integer"),
    ({"scope": "node"}, "scope: got 'node', expected device or global"),
    (
        {"batch_size": 23, "world_size": 2},
        "got 23 x 2 devices, which is 46 rows per step, expected at most the 45 rows",
    ),
    ({"batch_size": 16, "world_size": 3, "scope": "global"}, "got 16 x 3 devices"),
    ({"tail": "wrap"}, "tail: got 'wrap', expected keep or drop or pad"),
    ({"batch_order": "random"}, "batch order: got 'random', expected planned or shuffled"),
    ({"similarity": "l2"}, "similarity: got 'l2', expected cosine or dot"),
    ({"tail": None}, "tail: got None"),
    ({"colour": "red"}, "no option 'colour', expected similarity, batch_size, tail"),
    ({"seed": -1}, "seed: got -1"),
    ({"device": "abacus"}, "device: got 'abacus'"),
]


def test_refusals(planner, make):
    embeddings = make(45)
    for options, says in REFUSALS:
        with pytest.raises(InputError) as error:
            make_plan(planner, embeddings, **options)
        assert says in str(error.value)
        assert "\n" not in str(error.value)


def test_unknown_planner(make):
    with pytest.raises(InputError, match="planner: got 'abc', expected one of") as error:
        plan(make(45), planner="abc")
    assert str(error.value).endswith(", ".join(PLANNERS))


def test_registry(planner):
    entry = PLANNERS[planner]
    assert issubclass(entry.options, PlannerOptions)
    assert entry.help.endswith(".")
    assert "\n" not in entry.help
    assert entry.example.startswith(f"batchplan {planner} ")
    for field in fields(entry.options):
        assert field.metadata["help"]
    assert entry.options() == entry.options()
    with pytest.raises(AttributeError):
        entry.options().batch_size = 3
    hash(entry.options())


def test_run_planner_is_plan(planner, make):
    embeddings = make(45)
    options = options_of(planner, batch_size=9)
    one = run_planner(planner, embeddings, options, Runtime(device="cpu", seed=3))
    other = make_plan(planner, embeddings, batch_size=9, seed=3)
    assert np.array_equal(one.rows, other.rows)
    assert one.metadata == other.metadata


def test_stages_are_reported(planner, make):
    """Every stage that starts ends, and never passes its total."""

    class Observer:
        running, ended = {}, []

        def start(self, stage, total):
            assert stage not in self.running
            self.running[stage] = [0, total]

        def advance(self, stage, steps):
            assert steps >= 0
            self.running[stage][0] += steps

        def finish(self, stage, seconds):
            done, total = self.running.pop(stage)
            assert total is None or done == total
            assert seconds >= 0
            self.ended.append(stage)

        def note(self, name, value):
            pass

    make_plan(planner, make(100), observer=Observer())
    assert not Observer.running
