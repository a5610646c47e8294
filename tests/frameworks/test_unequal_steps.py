"""A rank with a step more than the others waits in its gradients' collective until the process
group gives up. The trace shows it, and a plan for all ranks ends."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from batchplan.consumption import Trace, verify
from batchplan.plans import Batching, Plan
from batchplan.training import PlanBatchSampler, Recorder

from .numbers import Rows
from .processes import run

ROWS, SIZE, RANKS = 162, 4, 2  # 41 batches, which 2 ranks cannot share evenly
PLAN = "plan.npz"


def every_other():
    """The loader that a user writes for a plan for one device: every other batch."""
    batches = [batch.tolist() for batch in Plan.load(PLAN).batches()]
    return DataLoader(Rows(ROWS), batch_sampler=batches[distributed.get_rank() :: RANKS])


def planned():
    sampler = PlanBatchSampler(PLAN, rank=distributed.get_rank(), world_size=RANKS)
    return DataLoader(Rows(ROWS), batch_sampler=sampler)


def train(folder, make_loader, seconds):
    """How many steps a rank trained, and why no more."""
    os.chdir(folder)
    distributed.init_process_group("gloo")
    group = distributed.new_group(timeout=timedelta(seconds=seconds))
    model = DistributedDataParallel(torch.nn.Linear(1, 1), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    ends, steps, reason = Path("ends"), 0, None
    try:
        for rows in Recorder("trace").wrap(make_loader()):
            optimizer.zero_grad()
            (model(rows[:, None] / ROWS) ** 2).mean().backward()
            optimizer.step()
            steps += 1
    except RuntimeError as error:
        reason = str(error)
    with open(ends, "a") as stream:
        stream.write("end\n")
    while len(ends.read_text().split()) < RANKS:  # a rank that is gone would break the connection
        time.sleep(0.05)
    return steps, reason


def plan(devices):
    order = np.random.default_rng(0).permutation(ROWS)
    Plan.cut(order, Batching(SIZE, world_size=devices), num_rows=ROWS).save(PLAN)


def causes():
    verdict = verify({0: Plan.load(PLAN)}, Trace("trace"))
    return [cause.name for cause in verdict.findings]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_rank_with_a_step_more_waits_until_the_time_is_out(folder):
    plan(1)
    (more, waited), (fewer, ended) = run(train, RANKS, folder, every_other, seconds=5)
    assert (more, fewer, ended) == (20, 20, None)
    assert "timed out" in waited.lower()
    assert "5000ms" in waited
    assert causes() == ["unequal steps"]


def test_a_plan_for_all_ranks_ends(folder):
    plan(RANKS)
    assert run(train, RANKS, folder, planned, seconds=60) == [(21, None), (21, None)]
    assert causes() == []
