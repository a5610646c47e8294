"""Mega-batches: units of work that are planned anywhere, and kept."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError
from batchplan.errors import OutputError, ResourceError
from batchplan.planners import plan
from batchplan.planners.partition import planner, together
from batchplan.planners.partition.mega_batch import prepare
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.partition.problem import make_problem
from batchplan.plans import Plan
from batchplan.runtime import Runtime
from tests.observing import Observer


@pytest.fixture
def table(tmp_path):
    """Options that name a source and a group for each of 240 rows."""
    path = tmp_path / "labels.parquet"
    sources = np.random.default_rng(1).choice(["a", "b", "c"], 240, p=[0.5, 0.3, 0.2])
    pq.write_table(pa.table({"source": sources, "group": np.arange(240) // 3}), path)
    return {"label_table": str(path), "source_column": "source", "group_column": "group"}


WAYS = [
    {},
    {"guard": False, "batch_order": "planned"},
    {"source_mix": "one", "tail": "pad"},
    {"source_mix": "one", "tail": "drop"},
    {"source_mix": "proportional"},
    {
        "reference": ["judge.npy"],
        "reference_pair": ["y.npy"],
    },
]


@pytest.fixture(autouse=True)
def earlier(tmp_path, monkeypatch, make):
    """Another model's rows, for the last way."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("judge", 0), ("y", 1)):
        side = np.random.default_rng(seed).standard_normal((240, 5)) + 1
        np.save(f"{name}.npy", side.astype(np.float32))


def made(embeddings, table=None, **options):
    named = table if "source_mix" in options else {}
    given = {"batch_size": 8, "mega_batches": 4, "device": "cpu"}
    return plan(embeddings, planner="partition", **{**given, **(named or {}), **options})


def same(one, other):
    return (
        np.array_equal(one.rows, other.rows)
        and np.array_equal(one.batch_offsets, other.batch_offsets)
        and one.metadata == other.metadata
    )


@pytest.mark.parametrize("way", WAYS)
def test_one_alone_is_planned_as_among_the_others(way, make, table, monkeypatch):
    """From the vectors of its rows, itself, the options and the seed, all sent through a pipe."""
    embeddings, planned = make(240 if {"source_mix", "reference"} & way.keys() else 243), {}

    def kept(problem, numbers, *rest):
        for number, batches in together.plan_all(problem, numbers, *rest):
            planned[number] = batches
            yield number, batches

    monkeypatch.setattr(planner, "plan_all", kept)
    found = made(embeddings, table, **way)
    named = table if "source_mix" in way else {}
    options = PartitionOptions(batch_size=8, mega_batches=4, **named, **way)
    runtime = Runtime(device="cpu")
    problem = make_problem(embeddings, options, runtime)
    assert len(planned) == len(problem.mega_batches) == found.metadata.metrics["mega_batches"]
    for number, (order, outcome) in planned.items():
        one = pickle.loads(pickle.dumps(problem.mega_batches[number]))
        vectors, reference = problem.vectors(problem.mega_batches[number])
        alone = prepare(vectors, one, options, runtime, reference).planned(runtime)
        assert np.array_equal(alone.order, order)
        assert alone.outcome == outcome
        assert len(order) == one.batch_sizes.sum()
    assert sum(len(order) for order, _ in planned.values()) == len(found.rows) or way.get("tail")


@pytest.mark.parametrize("way", WAYS)
def test_no_batch_has_rows_of_two(way, make, table):
    embeddings = make(240)
    named = table if "source_mix" in way else {}
    options = PartitionOptions(batch_size=8, mega_batches=4, **named, **way)
    homes = np.empty(240, np.int64)
    for number, dealt in enumerate(make_problem(embeddings, options, Runtime()).mega_batches):
        homes[dealt.rows] = number
    for batch in made(embeddings, table, **way).batches():
        assert len(set(homes[batch].tolist())) == 1


def test_memory_decides_whether_two_at_once_and_no_byte(make, monkeypatch, use_threads):
    embeddings = make(600)
    one = made(embeddings, mega_batches=6)
    use_threads(3)
    seen = []
    fits = together._two_fit
    monkeypatch.setattr(together, "_two_fit", lambda *a: seen.append(fits(*a)) or seen[-1])
    for left in (0, 10**12):
        with monkeypatch.context() as patched:
            patched.setattr(Runtime, "memory_left", lambda *_, left=left: left)
            patched.setattr(Runtime, "require_memory", lambda *_: None)
            assert same(one, made(embeddings, mega_batches=6))
    assert seen == [False, True]


def test_how_much_memory_two_take(make, monkeypatch):
    """For each row: both sides as stored and as float32, and the lists of neighbours of both."""
    embeddings = make(600)
    problem = make_problem(embeddings, PartitionOptions(batch_size=8, mega_batches=6), Runtime())
    stored = embeddings.x.dtype.itemsize
    need = 5 * 104 * (2 * embeddings.dim * (4 + stored) + 2 * 16 * problem.options.neighbors)
    assert max(len(one.rows) for one in problem.mega_batches) == 104
    for left, fits in ((need, True), (need - 1, False)):
        monkeypatch.setattr(Runtime, "memory_left", lambda *_, left=left: left)
        assert together._two_fit(problem, Runtime()) is fits


def test_stages_begin_once_for_all(make):
    stages = Observer()
    made(make(256), observer=stages)
    assert sorted(stages.begun) == sorted(stages.seconds)
    assert stages.totals["neighbors"] == 256
    assert all(seconds >= 0 for seconds in stages.seconds.values())


# Resumed


@pytest.fixture
def interrupted(monkeypatch):
    """Plans, except that the run ends once so many mega-batches are done."""

    def of(after, *given, **options):
        def some(problem, numbers, *rest):
            for done, batches in enumerate(together.plan_all(problem, numbers, *rest)):
                if done == after:
                    raise KeyboardInterrupt
                yield batches

        with monkeypatch.context() as patched:
            patched.setattr(planner, "plan_all", some)
            with pytest.raises(KeyboardInterrupt):
                made(*given, **options)

    return of


@pytest.mark.parametrize("way", [{}, WAYS[2], WAYS[4], WAYS[-1]])
def test_a_resumed_plan_has_the_same_bytes(way, make, table, interrupted, tmp_path, monkeypatch):
    embeddings, folder = make(240), tmp_path / "kept"
    whole = made(embeddings, table, **way)
    assert same(whole, made(embeddings, table, **way, resume=str(tmp_path / "other")))
    for after in (0, 1, 1):
        interrupted(after, embeddings, table, **way, resume=str(folder))
    assert len(list(folder.glob("*.npz"))) == 2
    begun = []
    work = together.plan_all

    def seen(problem, numbers, *rest):
        begun.append(numbers)
        return work(problem, numbers, *rest)

    monkeypatch.setattr(planner, "plan_all", seen)
    assert same(whole, made(embeddings, table, **way, resume=str(folder)))
    assert len(begun[0]) == whole.metadata.metrics["mega_batches"] - 2
    assert same(whole, made(embeddings, table, **way, resume=str(folder)))
    assert begun[1] == []
    for name in ("whole.npz", "resumed.npz"):
        (whole if name == "whole.npz" else made(embeddings, table, **way, resume=str(folder))).save(
            tmp_path / name
        )
    assert (tmp_path / "whole.npz").read_bytes() == (tmp_path / "resumed.npz").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"batch_size": 16},
        {"mega_batches": 5},
        {"data": 1},
        {"groups": 1},
        {"judge": 1},
    ],
    ids=str,
)
def test_what_another_run_left_is_not_read(change, make, table, tmp_path):
    resume = str(tmp_path / "kept")
    groups = {"group_column": "group", "label_table": table["label_table"]}
    way = WAYS[-1] if "judge" in change else groups
    made(make(240), **way, resume=resume)
    embeddings = make(240, np.float16) if "data" in change else make(240)
    if "groups" in change:
        pq.write_table(pa.table({"group": np.arange(240) // 2}), table["label_table"])
    if "judge" in change:
        np.save("judge.npy", np.load("judge.npy") * 2)
    own = {name: change[name] for name in change.keys() & {"seed", "batch_size", "mega_batches"}}
    assert same(made(embeddings, **way, **own), made(embeddings, **way, **own, resume=resume))
    assert len(list(Path(resume).iterdir())) == 4 + change.get("mega_batches", 4)


@pytest.mark.parametrize(
    ("column", "like"),
    [("anchor", "anchor"), ("positive", "positive"), ("negative", "positive")],
)
def test_ids_of_another_run_are_seen(column, like, make, tmp_path):
    """The same known answers, of other rows."""
    names = ("anchor", "positive", "negative")
    options = {"anchor_id": "anchor", "positive_id": "positive", "negative_id": ["negative"]}
    options["label_table"] = str(tmp_path / "ids.parquet")
    for rows in (np.arange(8, 24), np.arange(24, 40)):
        ids = {name: np.arange(240) + 1000 * number for number, name in enumerate(names)}
        ids[column][rows] = ids[like][7]
        pq.write_table(pa.table(ids), options["label_table"])
        found = made(make(240), **options, resume=str(tmp_path / "kept"))
        assert same(made(make(240), **options), found)
    assert len(list((tmp_path / "kept").iterdir())) > 4


def test_the_folder_cannot_be_made(make, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file: could not be written"):
        made(make(240), resume=str(tmp_path / "file"))


@pytest.mark.parametrize("damage", [b"", b"x" * 100, "cut"])
def test_damaged_files(damage, make, tmp_path):
    folder = tmp_path / "kept"
    made(make(240), resume=str(folder))
    path = sorted(folder.iterdir())[2]
    path.write_bytes(path.read_bytes()[:-9] if damage == "cut" else damage)
    with pytest.raises(InputError, match=r"\.npz: cannot be read .*the file is damaged: delete it"):
        made(make(240), resume=str(folder))


def test_the_metadata_of_a_resumed_plan_names_no_folder(make, tmp_path):
    found = made(make(240), resume=str(tmp_path / "kept"))
    assert "resume" not in found.metadata.options
    found.save(tmp_path / "plan.npy")
    assert same(Plan.load(tmp_path / "plan.npy"), replace(found))


@pytest.mark.parametrize(
    ("planner", "options"),
    [("gcbs", {}), ("knn", {}), ("cluster", {}), ("random", {"refine": 1}), ("partition", {})],
)
def test_too_little_memory_names_what_would_do(planner, options, make):
    with pytest.raises(ResourceError, match="plan with partition and a smaller --mega-batch-rows"):
        plan(make(240), planner=planner, device="cpu", batch_size=8, memory=1000, **options)


def test_large_groups_have_their_share_of_each_mega_batch(make, tmp_path):
    """As many rows as batches: one in each, though rows are dealt at random."""
    groups = np.where(np.random.default_rng(0).permutation(240) < 30, 7, -1)
    pq.write_table(pa.table({"group": groups}), tmp_path / "large.parquet")
    options = {"group_column": "group", "label_table": str(tmp_path / "large.parquet")}
    found = plan(make(240), planner="partition", batch_size=8, mega_batches=4, **options)
    assert [int((groups[batch] == 7).sum()) for batch in found.batches()] == [1] * 30
