"""Plans made in a process next to the training, from the steps up to a certain one."""

import gc
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import distributed

import batchplan.training.ahead
from batchplan import InputError
from batchplan.plans.plan import Plan
from batchplan.training import EpochPlans, PlanBatchSampler
from batchplan.training.epochs import process_place
from tests.cli.test_compare import runs
from tests.training.test_vectors import ROWS, at_first

from .processes import run

OPTIONS = {"planner": "partition", "mega_batches": 1, "embeddings": "training"}
SERIES = {"embed": at_first, "num_rows": ROWS, "batch_size": 8, **OPTIONS}


def drift(rows, epoch):
    """Vectors that change with the epochs, as those of a model do."""
    x, y = at_first(np.asarray(rows))
    turn = 0.3 * epoch
    return x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)


def taken(sides, rows):
    return [side[rows] for side in sides]


def epochs(plans, numbers, *, rank=0, devices=1, record=drift, slow=0.0):
    """The digests of the plans of epochs whose steps record vectors."""
    sampler = PlanBatchSampler(plans, rank=rank, world_size=devices)
    digests = []
    for epoch in numbers:
        sampler.set_epoch(epoch)
        digests.append(sampler.plan.digest)
        for rows in sampler:
            time.sleep(slow)
            plans.record(rows, *record(rows, epoch))
    return digests


def folder_is_clean(folder):
    kept = sorted(path.name for path in folder.iterdir())
    return all(name.startswith(("plan-", "run.json", "rank-")) for name in kept), kept


def children():
    """The processes that plan for this one."""
    found = set()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            status = (folder / "status").read_text()
            command = (folder / "cmdline").read_bytes()
            begun = not command and "State:\tZ" not in status  # a new program has no arguments yet
            if f"PPid:\t{os.getpid()}\n" in status and (begun or b"training.ahead" in command):
                found.add(folder.name)
    return found


def test_the_plan_follows_from_the_steps_up_to_a_named_one(tmp_path):
    plans = EpochPlans(tmp_path / "ahead", ahead=0.3, epochs=3, **SERIES)
    digests = epochs(plans, range(3))
    now = [side.numpy().copy() for side in at_first(np.arange(ROWS))]
    for epoch in range(2):
        path = tmp_path / "ahead" / f"plan-{epoch:04d}.npz"
        steps = list(PlanBatchSampler(path))
        assert len(steps) == 7
        for rows in steps[:4]:  # 0.3 of 7 steps are 3, rounded up
            for side, new in zip(now, drift(rows, epoch), strict=True):
                side[rows] = new
        fresh = {**SERIES, "embeddings": "fresh", "embed": partial(taken, now)}
        expected = EpochPlans(tmp_path / f"at-{epoch}", seed=epoch + 1, **fresh)
        assert expected.for_epoch(0).digest == digests[epoch + 1]
        for rows in steps[4:]:
            for side, new in zip(now, drift(rows, epoch), strict=True):
                side[rows] = new
    plans.end()
    assert folder_is_clean(tmp_path / "ahead")[0]


def test_the_clock_changes_nothing(tmp_path):
    digests = [
        epochs(
            EpochPlans(tmp_path / str(case), ahead=share, epochs=3, **SERIES), range(3), slow=slow
        )
        for case, (share, slow) in enumerate([(0.5, 0.0), (0.49, 0.2)])  # 4 of 7 steps are left
    ]
    assert digests[0] == digests[1]


def test_the_epoch_begins_without_a_wait(tmp_path):
    plans = EpochPlans(tmp_path / "plans", ahead=0.9, **SERIES)
    sampler = PlanBatchSampler(plans)
    sampler.set_epoch(0)
    for rows in sampler:
        plans.record(rows, *drift(rows, 0))
    deadline = time.monotonic() + 60
    while not plans.path(1).exists():  # beside what the loop does
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before = plans.path(1).stat().st_mtime_ns
    sampler.set_epoch(1)
    assert plans.path(1).stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_dies_is_named(number, tmp_path, caplog, monkeypatch):
    expected = epochs(EpochPlans(tmp_path / "whole", ahead=0.5, epochs=3, **SERIES), range(3))
    started, start = [], batchplan.training.ahead.start_python

    def killed(*arguments, **options):
        started.append(start(*arguments, **options))
        started[-1].send_signal(number)
        return started[-1]

    monkeypatch.setattr(batchplan.training.ahead, "start_python", killed)
    with caplog.at_level(logging.WARNING):
        digests = epochs(EpochPlans(tmp_path / "killed", ahead=0.5, epochs=3, **SERIES), range(3))
    assert digests == expected  # from the same vectors
    assert len(started) == 2
    said = [record.getMessage() for record in caplog.records]
    costs = [
        text for text in said if text.startswith("epoch 0: embedding 50 of 50 rows takes about")
    ]
    ends = [text for text in said if "next to the training failed (killed by" in text]
    doubts = [text for text in said if "its plan may not be worth it: it has " in text]
    # each series embeds all rows first, of random texts
    assert (len(costs), len(doubts), len(ends), len(said)) == (2, 2, 2, 6)


def test_one_that_cannot_start_is_named(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(sys, "executable", os.fspath(tmp_path / "none"))
    epochs(EpochPlans(tmp_path / "plans", ahead=0.5, **SERIES), range(2))
    assert "could not be started: No such file" in caplog.text


def test_its_error_is_said(tmp_path, caplog):
    table = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"label": np.arange(ROWS)}), table)
    options = {**SERIES, "group_column": "label", "label_table": str(table)}
    plans = EpochPlans(tmp_path / "plans", ahead=0.5, **options)
    sampler = PlanBatchSampler(plans)
    sampler.set_epoch(0)
    table.write_bytes(b"")
    for rows in sampler:
        plans.record(rows, *drift(rows, 0))
    with pytest.raises(InputError, match="labels"):
        sampler.set_epoch(1)
    assert "next to the training failed (" in caplog.text


def test_nothing_is_left(tmp_path):
    gc.collect()  # the plans of other tests
    before = children()
    plans = EpochPlans(tmp_path / "plans", ahead=0.9, **SERIES)
    sampler = PlanBatchSampler(plans)
    sampler.set_epoch(0)
    for rows in list(sampler)[:3]:
        plans.record(rows, *drift(rows, 0))
    assert len(children() - before) == 1
    plans.end()
    assert children() == before
    clean, kept = folder_is_clean(tmp_path / "plans")
    assert clean, kept


RUN = """
import sys, time
sys.path.insert(0, {root!r})
from tests.frameworks.test_ahead import *
plans = EpochPlans({folder!r}, ahead=0.9, **SERIES)
sampler = PlanBatchSampler(plans)
sampler.set_epoch(0)
for rows in list(sampler)[:3]:
    plans.record(rows, *drift(rows, 0))
plans._ahead._saving.result()
own = children()
for one in own:
    os.kill(int(one), signal.SIGSTOP)  # or its plan may be made before this process has ended
worker = os.fork()  # of a loader: it keeps the pipes open
if worker == 0:
    os.setsid()
    time.sleep(60)
    os._exit(0)
while os.getpgid(worker) == os.getpgrp():
    time.sleep(0.01)
print(worker, *own, flush=True)
time.sleep(60)
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_training(number, tmp_path):
    folder, root = tmp_path / "plans", os.fspath(Path(__file__).parents[2])
    program = RUN.format(root=root, folder=os.fspath(folder))
    training = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    )
    with training:
        worker, *own = map(int, training.stdout.readline().split())
        assert own
        os.killpg(training.pid, number)
    for one in own:
        os.kill(one, signal.SIGCONT)
    deadline = time.monotonic() + 30
    while any(map(runs, own)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert runs(worker)
    os.kill(worker, signal.SIGKILL)
    assert len([*folder.glob("plan-*.npz")]) == 1
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert hidden == []
    for path in folder.glob("plan-*.npz"):
        Plan.load(path)


def together(folder, slow):
    distributed.init_process_group("gloo")
    rank, devices = process_place()
    place = {"rank": rank, "world_size": devices}
    if rank == slow:
        batchplan.training.folder._PAUSES = (0.5, 0.5)
    options = {**SERIES, "batch_size": 4, "tail": "pad", "epochs": 3}
    plans = EpochPlans(folder, ahead=0.4, **options, **place)
    digests = epochs(plans, range(3), rank=rank, devices=devices)
    distributed.barrier()
    plans.end()
    return digests


@pytest.mark.parametrize(("devices", "slow"), [(2, 1), (4, 0)])
def test_several_processes(devices, slow, tmp_path):
    first, *others = run(together, devices, tmp_path / "plans", slow)
    assert len(set(first)) == 3
    assert all(digests == first for digests in others)
    clean, kept = folder_is_clean(tmp_path / "plans")
    assert clean, kept
    again = run(together, devices, tmp_path / "again", None)
    assert again[0] == first


def test_a_run_that_resumes_embeds_what_it_has_not_met(tmp_path):
    digests = epochs(EpochPlans(tmp_path / "plans", ahead=0.3, **SERIES), range(2))
    asked = []

    def embed(rows):
        asked.append(rows.tolist())
        return at_first(rows)

    plans = EpochPlans(tmp_path / "plans", ahead=0.3, **{**SERIES, "embed": embed})
    sampler = PlanBatchSampler(plans)
    sampler.load_state_dict({"epoch": 1, "position": 3, "plan": digests[1], "parts": "own"})
    met = list(sampler)
    for rows in met:
        plans.record(rows, *drift(rows, 1))
    sampler.set_epoch(2)
    assert asked == [sorted(set(range(ROWS)) - {row for rows in met for row in rows})]
    assert epochs(plans, [2, 3])[1]
    assert len(asked) == 1  # planned ahead again


def test_steps_without_record(tmp_path):
    """A loop that leaves steps out of the record waits for nothing."""
    plans = EpochPlans(tmp_path / "plans", ahead=0.1, epochs=3, **SERIES)
    sampler = PlanBatchSampler(plans)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        rows = sampler[0]
        plans.record(rows, *drift(rows, epoch))
    assert len(plans.saved()) == 3


def test_back_to_an_earlier_epoch(tmp_path):
    plans = EpochPlans(tmp_path / "plans", ahead=0.9, **SERIES)
    epochs(plans, [0])
    sampler = PlanBatchSampler(plans)
    digest = plans.for_epoch(0).digest
    sampler.load_state_dict({"epoch": 0, "position": 3, "plan": digest, "parts": "own"})
    assert epochs(plans, [1, 2])


def test_a_plan_of_several_epochs(tmp_path):
    """The next plan is begun when 0.6 of 28 steps are left, in the second of its epochs."""
    plans = EpochPlans(tmp_path / "plans", ahead=0.6, every=4, epochs=9, **SERIES)
    sampler, begun = PlanBatchSampler(plans), []
    for epoch in range(9):
        sampler.set_epoch(epoch)
        for rows in sampler:
            plans.record(rows, *drift(rows, epoch))
        begun.append(plans._ahead._saving is not None)
    assert begun == [False, True, True, True, False, True, True, True, False]
    assert len(plans.saved()) == 3


def test_nothing_is_planned_after_the_last_epoch(tmp_path):
    plans = EpochPlans(tmp_path / "plans", ahead=0.9, epochs=2, **SERIES)
    epochs(plans, range(2))
    assert plans._ahead._process is None
    assert len(plans.saved()) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ahead": 0.1, "embeddings": "fresh"}, "ahead: got 0.1 with embeddings='fresh'"),
        ({"ahead": 0}, "ahead: got 0, expected"),
        ({"ahead": 1.0}, "ahead: got 1.0, expected"),
    ],
)
def test_refusals(options, says, tmp_path):
    with pytest.raises(InputError, match=says):
        EpochPlans(tmp_path / "plans", **{**SERIES, **options})
    assert not (tmp_path / "plans").exists()
