"""Plans of a series of epochs, made by one process while the others wait."""

import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import Embeddings, InputError, ResourceError, plan
from batchplan.files.locks import is_marked
from batchplan.planners import choice
from batchplan.plans import Plan
from batchplan.training import EpochPlans, PlanBatchSampler
from batchplan.training.epochs import process_place
from batchplan.training.folder import PlanFolder

OPTIONS = {"planner": "random", "num_rows": 50, "batch_size": 8, "rank": 0, "world_size": 1}
EQUAL = {"guard": True}  # so that random batches depend on vectors


class Model:
    """Vectors that change from call to call, as a model's do."""

    def __init__(self, num_rows=50):
        self.num_rows = num_rows
        self.calls = 0

    def __call__(self, rows):
        self.calls += 1
        drawn = np.random.default_rng(self.calls).standard_normal((self.num_rows, 4), np.float32)
        return drawn[rows]


def make(folder, model=None, **options):
    options = {**OPTIONS, **({} if "planner" in options else EQUAL), **options}
    return EpochPlans(folder / "plans", embed=model or Model(), **options)


def everywhere(work, devices):
    """What ``work(rank)`` returns in each process, as threads."""
    with ThreadPoolExecutor(devices) as pool:
        return [done.result(60) for done in [pool.submit(work, rank) for rank in range(devices)]]


def test_each_epoch_has_a_plan_of_its_own(tmp_path):
    model = Model()
    plans = make(tmp_path, model)
    made = [plans.for_epoch(epoch) for epoch in range(3)]
    assert model.calls == 3
    assert [plan.metadata.seed for plan in made] == [0, 1, 2]
    assert [path.name for path in plans.saved()] == [f"plan-000{epoch}.npz" for epoch in range(3)]
    assert len({plan.metadata.fingerprint for plan in made}) == 3
    assert len({plan.digest for plan in made}) == 3


def test_a_restarted_epoch_has_the_plan_that_it_had(tmp_path):
    before = make(tmp_path).for_epoch(2)
    model = Model()
    again = make(tmp_path, model)
    assert again.for_epoch(2).digest == before.digest
    assert again.existing(2).digest == before.digest
    assert model.calls == 0
    with pytest.raises(InputError, match=r"plan-0001.npz: does not exist, but training goes on"):
        again.existing(1)


class Learner:
    """Pairs of vectors without a likeness at first, and equal ones later."""

    def __init__(self, calls=0):
        self.calls = calls

    def __call__(self, rows):
        self.calls += 1
        x, y = np.random.default_rng(0).standard_normal((2, 300, 4), np.float32)[:, rows]
        return (x, y) if self.calls == 1 else (x, x + y / 100)


@pytest.mark.parametrize(
    ("most_rows", "options", "count"),
    [
        (300, {}, 2),
        (60, {}, 5),
        (300, {"mega_batches": "auto"}, 2),
        (60, {"mega_batches": "auto"}, 5),
        (300, {"mega_batches": "auto", "mega_batch_rows": 25}, 12),
        (60, {"mega_batches": 3}, 3),
        (60, {"mega_batch_rows": 100}, 3),
    ],
)
def test_the_first_plan_settles_the_mega_batches(tmp_path, monkeypatch, most_rows, options, count):
    """Whatever would be chosen later, also by a run that goes on."""
    options = {"planner": "partition", "num_rows": 300, **options}
    monkeypatch.setattr(choice, "MEGA_BATCH_ROWS", most_rows)
    plans = make(tmp_path, Learner(), **options)
    made = [plans.for_epoch(0)]
    monkeypatch.setattr(choice, "MEGA_BATCH_ROWS", 20)
    made.append(plans.for_epoch(2))
    made.append(make(tmp_path, Learner(1), **options).for_epoch(4))
    assert [plan.metadata.metrics["mega_batches"] for plan in made] == [count] * 3


@pytest.mark.parametrize("more", [{}, {"every": 2, "planned_epochs": 2}])
def test_epochs_after_the_planned_ones_are_random(tmp_path, more):
    """Without a call of the model, also where a run goes on; with the batches of `random`."""
    options = {"planner": "partition", "num_rows": 300, "planned_epochs": 3, **more}
    options["batch_order"] = "planned"
    model = Learner()
    plans = make(tmp_path, model, **options)
    planned = options["planned_epochs"]
    made = [plans.for_epoch(epoch) for epoch in range(planned + 2)]
    calls = model.calls
    assert calls == -(-planned // options.get("every", 1))
    made.append(make(tmp_path, model, **options).for_epoch(planned + 2))
    assert model.calls == calls
    planners = [plan.metadata.planner for plan in made]
    assert planners == ["partition"] * planned + ["random"] * 3
    random = made[-1]
    of_random = plan(
        *model(np.arange(300)), planner="random", batch_size=8, seed=random.metadata.seed
    )
    assert np.array_equal(random.rows, of_random.rows)
    assert random.metadata.fingerprint is None


def test_random_plans_need_no_vectors_after_the_planned_epochs(tmp_path):
    model = Model()
    plans = make(tmp_path, model, planned_epochs=1)
    assert len({plans.for_epoch(epoch).digest for epoch in range(3)}) == 3
    assert model.calls == 1


@pytest.mark.parametrize("planned", [None, 2])
def test_the_first_epochs_are_random(tmp_path, planned):
    plans = make(tmp_path, Learner(), num_rows=300, planner="partition", random_epochs=2,
                 planned_epochs=planned)  # fmt: skip
    planners = [plans.for_epoch(epoch).metadata.planner for epoch in range(5)]
    assert planners == ["random"] * 2 + ["partition"] * 2 + ["random" if planned else "partition"]


def test_random_epochs_have_the_batches_of_planned_ones(tmp_path):
    """Also if all devices share each."""
    options = {"num_rows": 300, "planner": "partition", "random_epochs": 1, "world_size": 2}
    plans = make(tmp_path, Learner(), scope="global", **options)
    drawn = plans.for_epoch(0)
    assert [len(batch) for batch in drawn.batches()] == plans.batch_sizes().tolist()
    assert drawn.metadata.batch_size == 16


def test_random_epochs_part_groups(tmp_path):
    groups = np.arange(300) % 30
    pq.write_table(pa.table({"group": groups}), tmp_path / "groups.parquet")
    table = {"group_column": "group", "label_table": str(tmp_path / "groups.parquet")}
    options = {"num_rows": 300, "planner": "partition", "planned_epochs": 1}
    plans = make(tmp_path, Learner(), **options, **table)
    for epoch in range(3):
        assert all(len(set(groups[batch])) == len(batch) for batch in plans.for_epoch(epoch))


@pytest.mark.parametrize(
    "options",
    [
        {"planned_epochs": 0},
        {"random_epochs": -1},
        {"planner": "rwr", "coverage": "independent"},
        {"planner": "partition", "source_column": "source"},
        {"planner": "partition", "group_column": "group"},  # of the embeddings' own file
    ],
)
def test_planned_epochs_that_are_refused(tmp_path, options):
    with pytest.raises(InputError, match=r"epochs: got .*, expected"):
        make(tmp_path, **{"planned_epochs": 3, **options})


RWR = {"planner": "rwr", "candidate_rows": 20, "neighbors": 5}


def restarts(plans, epochs):
    """The restart probability of the plan of each epoch, as its walks used it."""
    return [plans.for_epoch(epoch).metadata.metrics["restart"] for epoch in epochs]


def test_a_schedule_follows_the_epochs(tmp_path):
    """BatchSampler, section 5.3: from 0.2 in the first epoch to 0.05 in the last, evenly."""
    options = {**RWR, "restart": "0.2:0.05", "epochs": 4}
    plans = make(tmp_path, **options)
    assert restarts(plans, (0, 1)) == pytest.approx([0.2, 0.15])
    plans.end()
    resumed = make(tmp_path, **options)
    resumed.resume()
    third = resumed.for_epoch(2)
    vectors = Embeddings.from_arrays(Model()(np.arange(50)).astype(np.float16))
    same = plan(vectors, batch_size=8, seed=2, restart=0.1, **RWR)
    assert np.array_equal(third.rows, same.rows)
    # A run that goes on for longer keeps the last value.
    assert restarts(resumed, range(5)) == pytest.approx([0.2, 0.15, 0.1, 0.05, 0.05])
    assert restarts(make(tmp_path / "one", **{**options, "epochs": 1}), [0]) == [0.2]
    shared = make(tmp_path / "two", **options, every=2)
    assert restarts(shared, range(4)) == pytest.approx([0.2, 0.2, 0.1, 0.1])


def test_shuffled_plans_are_those_of_their_epoch(tmp_path):
    plans = make(tmp_path, planner="shuffled", seed=7)
    for epoch in (0, 3):
        made = plan(np.ones((50, 4)), planner="shuffled", batch_size=8, seed=7 + epoch, epoch=epoch)
        assert np.array_equal(plans.for_epoch(epoch).rows, made.rows)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({**RWR, "restart": "0.2:0.05"}, "restart: got 0.2:0.05, which changes with the epochs"),
        ({**RWR, "progress": 0.5}, "progress: got 0.5, but each plan gets its epoch"),
        ({"planner": "shuffled", "epoch": 1}, "epoch: got 1, but each plan gets its"),
    ],
)
def test_options_that_follow_the_epochs_are_refused(tmp_path, options, says):
    with pytest.raises(InputError, match=says):
        make(tmp_path, **options)


def test_epochs_may_share_a_plan(tmp_path):
    model = Model()
    plans = make(tmp_path, model, every=2, seed=7)
    made = [plans.for_epoch(epoch) for epoch in range(5)]
    assert model.calls == 3
    assert [plan.metadata.seed for plan in made] == [7, 7, 9, 9, 11]
    assert [path.name for path in plans.saved()] == [f"plan-000{epoch}.npz" for epoch in (0, 2, 4)]


def test_the_oldest_plans_go(tmp_path):
    plans = make(tmp_path, keep=2)
    for epoch in range(5):
        plans.for_epoch(epoch)
    assert [path.name for path in plans.saved()] == ["plan-0003.npz", "plan-0004.npz"]
    plans.for_epoch(1)  # from an older checkpoint: the plans after it stay
    assert [path.name for path in plans.saved()] == [f"plan-000{epoch}.npz" for epoch in (1, 3, 4)]


SHARED = {"batch_size": 8, "planner": "random", "guard": True, "num_rows": 50, "world_size": 2}


def test_each_process_embeds_its_share_and_waits_for_the_others(tmp_path):
    release, asked, got = threading.Event(), {0: [], 1: []}, {}

    def work(rank):
        def embed(rows):
            asked[rank].append(rows.tolist())
            if rank:
                release.wait(30)
            return Model()(rows)

        got[rank] = EpochPlans(tmp_path, embed=embed, rank=rank, **SHARED).for_epoch(0)

    threading.Timer(0.2, release.set).start()
    everywhere(work, 2)
    assert asked == {0: [[*range(25)]], 1: [[*range(25, 50)]]}
    alone = make(tmp_path / "alone").for_epoch(0)
    assert got[0].digest == got[1].digest
    assert got[0].metadata.fingerprint == alone.metadata.fingerprint
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "plan-0000.npz", "run.json", "rank-1.lock"
    }  # fmt: skip


@pytest.mark.parametrize("failing", [0, 1])
def test_the_others_hear_that_one_failed(tmp_path, failing):
    def embed(rows):
        raise MemoryError("no room for 7 vectors")

    raised = {}

    def work(rank):
        model = embed if rank == failing else Model()
        with pytest.raises((MemoryError, ResourceError)) as error:
            EpochPlans(tmp_path, embed=model, rank=rank, **SHARED).for_epoch(3)
        raised[rank] = str(error.value)

    everywhere(work, 2)
    assert raised[failing] == "no room for 7 vectors"
    says = f"the process of rank {failing} failed with MemoryError: no room for 7 vectors"
    assert says in raised[1 - failing]
    error = tmp_path / "plan-0003.error"
    os.utime(error, (0, 0))  # as another run left it
    gc.collect()  # the locks of this one
    with pytest.raises(ResourceError, match=r"no answer after 0.05 seconds; look at what"):
        EpochPlans(tmp_path, embed=Model(), rank=1, timeout=0.05, **SHARED).for_epoch(3)
    EpochPlans(tmp_path, embed=embed, rank=0, **SHARED)
    assert not error.exists()


def test_the_error_goes_when_the_plan_is_there(tmp_path):
    model = Model(num_rows=7)
    plans = make(tmp_path, model)
    with pytest.raises(IndexError):
        plans.for_epoch(0)
    model.num_rows = 50
    plans.for_epoch(0)
    names = sorted(path.name for path in plans.folder.iterdir())
    assert names == ["plan-0000.npz", "run.json"]


def test_a_wait_ends(tmp_path):
    start = time.monotonic()
    with pytest.raises(ResourceError, match="raise timeout"):
        make(tmp_path, rank=1, world_size=2, timeout=0.2).for_epoch(0)
    assert time.monotonic() - start >= 0.2


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"planner": "shuffled"}, "planner is 'random', expected 'shuffled'"),
        ({"seed": 1}, "seed is 0, expected 1"),
        ({"batch_size": 4}, "batch size is 8, expected 4"),
        ({"tail": "drop"}, "tail is 'keep', expected 'drop'"),
        ({"world_size": 2}, "world size is 1, expected 2"),
        ({"scope": "global"}, "scope is 'device', expected 'global'"),
        ({"guard": False}, "guard is True, expected False"),
        ({"num_rows": 49}, "num rows is 50, expected 49"),
        ({"data": "other"}, "data is 'these', expected 'other'"),
    ],
)
def test_a_run_with_other_data_or_options_does_not_resume(tmp_path, changed, says):
    known = {"num_rows": 50, "data": "these"}
    make(tmp_path, **known).for_epoch(0)
    model = Model()
    again = make(tmp_path, model, **{**known, **changed})
    with pytest.raises(InputError, match=f"holds the plans of another run, whose {says}; remove"):
        again.for_epoch(1)
    again.resume()  # then its plans are not to be removed
    with pytest.raises(InputError, match=f"{says}; resume with the .* that the run had, or begin"):
        again.for_epoch(1)
    assert model.calls == 0
    make(tmp_path, **known, keep=3, timeout=1).for_epoch(1)


def test_plans_without_the_description_of_their_run(tmp_path):
    make(tmp_path).for_epoch(0)
    (tmp_path / "plans" / "run.json").unlink()
    again = make(tmp_path)
    again.resume()
    with pytest.raises(InputError, match=r"run.json: is missing, .* be compared; remove the fold"):
        again.for_epoch(1)
    assert [path.name for path in again.saved()] == ["plan-0000.npz"]
    assert not (tmp_path / "plans" / "run.json").exists()


@pytest.mark.parametrize("take", [lambda plans: plans.for_epoch(0), PlanBatchSampler])
def test_a_new_run_does_not_train_on_the_plans_of_an_earlier_one(tmp_path, take):
    """It has the same data, options and seed: a model trained at another rate, say."""
    make(tmp_path).for_epoch(0)
    model = Model()
    with pytest.raises(
        InputError, match=r"holds the plans of an earlier run, .* remove the folder"
    ):
        len(take(make(tmp_path, model)).plan)
    assert model.calls == 0
    other = make(tmp_path, rank=1, world_size=2, timeout=5)  # hears of it, and takes no old plan
    with pytest.raises(ResourceError, match=r"rank 0 failed with InputError: .* an earlier run"):
        other.for_epoch(0)


def test_a_run_resumes_in_its_first_epoch(tmp_path):
    first = make(tmp_path).for_epoch(0)
    plans = make(tmp_path)
    plans.resume()
    assert plans.for_epoch(0).digest == first.digest


PLANS = """
import os, signal, sys, time
import numpy as np
from batchplan.training import EpochPlans

rank = int(sys.argv[2])

def embed(rows):
    print(os.getpid(), flush=True)
    if rank == int(sys.argv[3]):
        print(os.fork() or time.sleep(600), flush=True)
        time.sleep(60)
    return np.ones((len(rows), 4))

options = {"num_rows": 50, "batch_size": 8, "rank": rank, "world_size": 2}
EpochPlans(sys.argv[1], "random", guard=True, embed=embed, **options).for_epoch(0)
"""


@pytest.fixture
def kill_planning(tmp_path, programs):
    """Ends a process of rank 0 that embeds for its first plan."""
    words = [programs / "python", "-c", PLANS, tmp_path / "plans", "0", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        numbers = [int(process.stdout.readline()) for _ in range(2)]  # and a worker, which lives on

        def kill():
            os.kill(numbers.pop(0), signal.SIGKILL)
            process.wait()

        yield kill
        for number in numbers:
            os.kill(number, signal.SIGKILL)


def test_a_second_run_at_the_same_time_is_refused(tmp_path, kill_planning):
    model = Model()
    with pytest.raises(InputError, match="another run plans in this folder now"):
        make(tmp_path, model, world_size=2).for_epoch(0)
    assert model.calls == 0
    assert [path.name for path in (tmp_path / "plans").iterdir()] == ["run.json"]  # no error of it
    kill_planning()
    make(tmp_path, model).for_epoch(0)  # and it left nothing that is in the way


@pytest.mark.parametrize("killed", [0, 1])
def test_the_others_notice_that_one_was_killed(tmp_path, programs, killed):
    """They would wait for six hours."""
    words = [programs / "python", "-c", PLANS, tmp_path / "plans"]
    both = [
        subprocess.Popen([*words, str(rank), str(killed)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]  # fmt: skip
    ranks = [int(process.stdout.readline()) for process in both]
    worker = int(both[killed].stdout.readline())  # of a loader, which lives on
    os.kill(ranks[killed], signal.SIGKILL)
    _, says = both[1 - killed].communicate(timeout=120)
    os.kill(worker, signal.SIGKILL)
    assert f"the process of rank {killed} has ended before it did its part".encode() in says
    both[killed].communicate()


WITHOUT_LOCKS = """
import errno, fcntl, os, sys, time
import numpy as np

def flock(*_):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = flock
from batchplan.training import EpochPlans

folder, rank, epoch = sys.argv[1], *map(int, sys.argv[2:])
options = {"num_rows": 50, "batch_size": 8, "rank": rank, "world_size": 2, "timeout": 60}
embed = lambda rows: np.random.default_rng(rank).standard_normal((len(rows), 4))
plans = EpochPlans(folder, "random", guard=True, embed=embed, embeddings="training", **options)
print("made", flush=True)
plans.for_epoch(epoch)
print(len(plans._vectors.store.met), flush=True)
if epoch == 0:  # killed while the next epoch is planned
    rows = np.arange(25 * rank, 25 * rank + 25)
    plans.record(rows, embed(rows))
    plans._vectors.handed_over(1)()
    print(os.getpid(), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("first", [0, 1])
def test_a_restart_of_all_processes_on_a_file_system_without_locks(tmp_path, programs, first):
    """The files of those that were killed are not taken for those of the living, and these are not
    removed."""

    def start(rank, epoch):
        words = [programs / "python", "-c", WITHOUT_LOCKS, tmp_path / "plans"]
        return subprocess.Popen([*words, str(rank), str(epoch)], stdout=subprocess.PIPE)

    killed = [start(rank, 0) for rank in (0, 1)]
    for process in killed:
        *_, number = (process.stdout.readline() for _ in range(3))
        os.kill(int(number), signal.SIGKILL)
        process.communicate()
    assert len([*(tmp_path / "plans").glob("part-*0001-steps-*.npy")]) == 2
    early = start(first, 1)
    assert early.stdout.readline() == b"made\n"
    time.sleep(1)  # it waits, or has embedded
    both = [early, start(1 - first, 1)]
    for process in both:
        process.communicate(timeout=50)
        assert process.returncode == 0
    names = sorted(path.name for path in (tmp_path / "plans").iterdir())
    assert names == ["plan-0000.npz", "plan-0001.npz", "rank-1.lock", "run.json"]


@pytest.mark.parametrize("changed", [{"data": "other"}, {"seed": 1}])
def test_a_process_with_other_rows_or_options_is_named(tmp_path, changed):
    def work(rank):
        options = {**SHARED, "data": "these", **(changed if rank else {})}
        with pytest.raises((InputError, ResourceError)) as error:
            EpochPlans(tmp_path, embed=Model(), rank=rank, **options).for_epoch(0)
        return str(error.value)

    here, there = everywhere(work, 2)
    (name, value), *_ = changed.items()
    assert there.startswith(f"rank 1: its {name} is {value!r}, but rank 0 has ")
    assert f"the process of rank 1 failed with InputError: {there}" in here


def test_one_that_begins_between_two_looks_has_not_ended(tmp_path, monkeypatch):
    """Its lock was not seen, and then the host that it wrote after it had locked."""
    first, second = (PlanFolder(tmp_path, 1, 1, rank, 2, 60) for rank in (0, 1))
    first.begin(0, {})
    part = first.part_path(0, 0, 1)

    def look(path):
        marked = is_marked(path)
        if path.name == "rank-1.lock" and not path.exists():
            second.begin(0, {})
            threading.Timer(0.1, part.touch).start()
        return marked

    monkeypatch.setattr("batchplan.training.folder.is_marked", look)
    first.wait_for(part, 0, 1)
    part.unlink()
    second.end()
    with pytest.raises(ResourceError, match="rank 1 has ended before it did its part"):
        first.wait_for(part, 0, 1)


LOOP = """
import json, os, signal, sys
from pathlib import Path
import numpy as np
from batchplan.training import EpochPlans, PlanBatchSampler

folder, state, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
vectors = np.random.default_rng(0).standard_normal((50, 4))
plans = EpochPlans(
    folder, "gcbs", embed=lambda rows: vectors[rows], embeddings=sys.argv[4], num_rows=50,
    batch_size=8, rank=0, world_size=1, epochs=3,
)
sampler, steps, begin = PlanBatchSampler(plans), 0, 0
if state.exists():
    saved = json.loads(state.read_text())
    sampler.load_state_dict(saved["sampler"])
    begin, steps = saved["epoch"], saved["steps"]
for epoch in range(begin, 3):
    sampler.set_epoch(epoch)
    for batch in sampler:
        if sys.argv[4] == "training":
            plans.record(batch, vectors[batch])
        steps += 1
        print(json.dumps([epoch, batch]), flush=True)
        new = {"sampler": sampler.state_dict(), "epoch": epoch, "steps": steps}
        state.with_suffix(".new").write_text(json.dumps(new))
        state.with_suffix(".new").rename(state)
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
plans.end()
"""


@pytest.mark.parametrize("embeddings", ["fresh", "training"])
def test_a_killed_run_goes_on_with_the_rows_of_an_unkilled_one(tmp_path, programs, embeddings):
    """Killed within an epoch, at its end, and again; what the killed one left is not in the way."""

    def trained(name, last=0):
        words = [programs / "python", "-c", LOOP, tmp_path / name, tmp_path / f"{name}.json"]
        done = subprocess.run([*words, str(last), embeddings], stdout=subprocess.PIPE)
        assert done.returncode == (-9 if last else 0)
        return [json.loads(line) for line in done.stdout.splitlines()]

    unkilled = trained("one")
    assert len(unkilled) == 3 * 7
    assert [step for last in (3, 7, 9, 0) for step in trained("other", last)] == unkilled


def test_number_of_batches_before_the_first_plan(tmp_path):
    model = Model()
    for tail, batches in (("keep", 7), ("drop", 6), ("pad", 7)):
        assert make(tmp_path, model, num_rows=50, tail=tail).num_batches() == batches
    assert make(tmp_path, model, num_rows=50, world_size=2).num_batches() == 8
    assert model.calls == 0
    sampled = {"planner": "osgd", "num_batches": 3, "num_rows": 50}
    assert make(tmp_path, model, **sampled).num_batches() == 3
    assert model.calls == 1
    assert make(tmp_path, model, **sampled).num_batches() == 3
    assert model.calls == 1


def test_refusals(tmp_path):
    for options, says in (
        ({"planner": "none"}, "planner: got 'none', expected one of"),
        ({"temprature": 1}, "no option 'temprature'"),
        ({"planner": "hardneg"}, "as_batches=True"),
        ({"every": 0}, "every: got 0"),
        ({"keep": 0}, "keep: got 0"),
    ):
        with pytest.raises(InputError, match=says):
            make(tmp_path, **options)
    for embed, says in (
        (lambda rows: Model()(rows)[1:], r"embed: got \(49, 4\) for 50 rows, expected 1 of shape"),
        (lambda rows: [], "embed: returned no arrays, expected one for each side"),
        (lambda rows: Model()(rows) * np.nan, "x: row 0 has NaN or values beyond 65504"),
    ):
        with pytest.raises(InputError, match=says):
            make(tmp_path, embed).for_epoch(0)
    with pytest.raises(InputError, match="got 1 mined negatives per row, but knn plans pairs"):
        make(tmp_path, lambda rows: [Model()(rows)] * 3, planner="knn").for_epoch(0)
    with pytest.raises(InputError, match="embeddings: got 'old', expected fresh or training"):
        make(tmp_path, embeddings="old")


def test_mined_negatives(tmp_path):
    """The third array and those after it."""
    sides = [np.random.default_rng(k).standard_normal((50, 4)).astype(np.float16) for k in range(4)]
    plans = make(tmp_path, lambda rows: [side[rows] for side in sides], planner="partition")
    expected = Embeddings.from_arrays(*sides[:2], negatives=sides[2:])
    assert plans.for_epoch(0).metadata.fingerprint == expected.fingerprint


def test_a_sampler_of_a_series(tmp_path):
    model = Model()
    plans = make(tmp_path, model, num_rows=50)
    sampler = PlanBatchSampler(plans)
    assert len(sampler) == 7
    assert model.calls == 0  # the length is known before
    epochs = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
        assert epochs[-1] == [batch.tolist() for batch in Plan.load(plans.path(epoch)).batches()]
    assert model.calls == 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_sampler_of_something_else():
    with pytest.raises(InputError, match="source: got a list, expected a plan, the path of one"):
        PlanBatchSampler([[0, 1]])


def test_a_finished_epoch_is_the_next_one_not_begun(tmp_path):
    sampler = PlanBatchSampler(make(tmp_path))
    sampler.set_epoch(1)
    list(sampler)
    state = sampler.state_dict()
    sampler.set_epoch(2)
    expected = list(sampler)
    sampler.series.end()
    resumed = PlanBatchSampler(make(tmp_path))
    resumed.load_state_dict(state)
    assert len(resumed) == 7
    assert (resumed.epoch, resumed.position) == (2, 0)
    resumed.set_epoch(resumed.epoch)
    assert list(resumed) == expected


@pytest.mark.parametrize(
    ("epoch", "taken", "due"),
    [(1, 3, 1), (1, 0, 2), (1, 0, 0), (1, 7, 1), (1, 7, 2)],
)
def test_a_state_that_is_loaded_after_the_epoch_was_set(tmp_path, epoch, taken, due):
    sampler = PlanBatchSampler(make(tmp_path))
    sampler.set_epoch(0)
    sampler.set_epoch(epoch)
    batches = iter(sampler)
    for _ in range(taken):
        next(batches)
    state = sampler.state_dict()
    sampler.series.end()
    resumed = PlanBatchSampler(make(tmp_path))
    resumed.set_epoch(due)
    resumed.load_state_dict(state)
    begin = taken if epoch == due else 0
    expected = [batch.tolist() for batch in Plan.load(resumed.series.path(due)).batches()][begin:]
    assert list(resumed) == expected
    resumed.set_epoch(0)
    assert len(list(resumed)) == 7


@pytest.mark.parametrize(("taken", "due"), [(3, 0), (3, 2), (7, 0)])
def test_a_state_of_another_epoch_than_the_one_that_was_set(tmp_path, taken, due):
    sampler = PlanBatchSampler(make(tmp_path))
    sampler.set_epoch(1)
    batches = iter(sampler)
    for _ in range(taken):
        next(batches)
    sampler.set_epoch(due)
    state = {**sampler.state_dict(), "epoch": 1, "position": taken, "plan": None}
    says = rf"epoch 1, but set_epoch\({due}\) was called; resume with"
    with pytest.raises(InputError, match=says):
        sampler.load_state_dict(state)
    sampler.series.end()
    resumed = PlanBatchSampler(make(tmp_path))
    resumed.load_state_dict(state)
    with pytest.raises(InputError, match=says):
        resumed.set_epoch(due)


def test_a_loop_that_never_sets_the_epoch_is_warned(tmp_path):
    sampler = PlanBatchSampler(make(tmp_path))
    first = list(sampler)
    with pytest.warns(UserWarning, match=r"has the plan of epoch 0 again; call sampler.set_epoch"):
        assert list(sampler) == first
    for silent in (PlanBatchSampler(sampler.plan), PlanBatchSampler(sampler.series)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for epoch in range(3):
                if silent.series:
                    silent.set_epoch(epoch)
                list(silent)


def test_a_sampler_of_a_series_goes_on(tmp_path):
    plans = make(tmp_path)
    sampler = PlanBatchSampler(plans)
    sampler.set_epoch(1)
    batches = iter(sampler)
    taken = [next(batches) for _ in range(3)]
    state = json.loads(json.dumps(sampler.state_dict()))
    model = Model()
    resumed = PlanBatchSampler(make(tmp_path, model))
    resumed.load_state_dict(state)
    resumed.set_epoch(1)
    assert taken + list(resumed) == list(sampler)
    assert model.calls == 0
    plans.path(1).unlink()
    with pytest.raises(InputError, match="restore the file, or resume from a checkpoint at the"):
        PlanBatchSampler(make(tmp_path)).load_state_dict(state)


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(("taken", "due"), [(8, None), (8, 2), (3, 2), (7, None)])
def test_a_state_between_epochs_is_of_the_plans_in_the_folder(tmp_path, every, taken, due):
    """Of the epoch that was completed, or of the next one."""
    kept = PlanBatchSampler(make(tmp_path, every=every))
    for epoch, pulled in ((0, 8), (1, taken)):
        kept.set_epoch(epoch)
        batches = iter(kept)
        for _ in range(pulled):  # the last one ends the pass
            next(batches, None)
    if due is not None:
        kept.set_epoch(due)
    state = kept.state_dict()
    kept.series.end()
    other = shutil.copytree(kept.series.folder, tmp_path / "other" / "plans")
    for path in other.glob("plan-*"):
        plan = Plan.load(path)
        Plan(plan.rows[::-1].copy(), plan.batch_offsets, plan.metadata).save(path, force=True)

    def passed_on(state):
        sampler = PlanBatchSampler(make(tmp_path, every=every))
        sampler.set_epoch(2)
        sampler.load_state_dict(state)
        return sampler.state_dict()  # saved before the first step

    def resumed(folder, **more):
        sampler = PlanBatchSampler(make(folder, every=every, **more))
        sampler.set_epoch(2)
        sampler.load_state_dict(passed_on(state))
        return sampler.plan.digest

    with pytest.raises(InputError, match=r"state: is of \d batches of the plan with digest"):
        resumed(tmp_path / "other")
    digest = resumed(tmp_path, keep=1)
    assert digest == resumed(tmp_path)  # the plan of the epoch that was completed is gone
    for path in (tmp_path / "plans").glob("plan-*"):
        path.unlink()
    resumed(tmp_path)


def test_pickled_without_the_model(tmp_path):
    plans = make(tmp_path, lambda rows: Model()(rows))
    plans.for_epoch(0)
    copy = pickle.loads(pickle.dumps(PlanBatchSampler(plans)))
    assert list(copy) == list(PlanBatchSampler(plans))
    with pytest.raises(InputError, match="embed: was lost"):
        copy.set_epoch(1)


def test_the_place_of_this_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert process_place() == (0, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert process_place() == (3, 4)
    assert process_place(rank=1, world_size=2) == (1, 2)
