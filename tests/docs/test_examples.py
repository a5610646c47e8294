"""The programs of docs/examples run, and do what docs/epoch_loop.md says of them."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
import torch

from batchplan import Plan

from .blocks import ROOT, blocks_of
from .shown import require_same
from .test_pages import ELSEWHERE

EXAMPLES = ROOT / "docs" / "examples"
SHOWN = [
    (shlex.split(command), shown, block.like)
    for block in blocks_of(ROOT / "docs" / "epoch_loop.md")
    for command, shown in block.commands()
    if command.startswith(ELSEWHERE)
]


@pytest.fixture
def run(tmp_path, programs):
    """Run a program in a folder with the sample data; what it printed on both streams."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    shutil.copytree(EXAMPLES, tmp_path / "docs" / "examples")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": ""}

    def run(*command, status=0):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    return run


def measured(printed):
    """The losses and the reciprocal ranks, in order."""
    losses, ranks = (
        [float(number) for number in re.findall(rf"{name} ([\d.]+)", printed)]
        for name in ("loss", "reciprocal rank")
    )
    return losses, ranks


def test_both_programs_train_the_same_model(run, tmp_path):
    (program, shown, like), (script, *_) = SHOWN
    printed = run(*program)
    require_same(shown, printed, "epoch_loop.md", like)
    losses, ranks = measured(printed)
    assert len(losses) == 4
    assert len(ranks) == 5
    assert max(ranks[1:]) > ranks[0]

    # The loop stops at a bad plan, and goes on where it stopped.
    loop = tmp_path / script[1]
    kept = loop.read_text()
    begun = run(*script[:-1], "1")
    loop.write_text(kept.replace("batchplan partition", "batchplan random"))
    assert "1 of 2 gates failed" in run(*script, status=1)
    assert sorted(path.name for path in tmp_path.glob("run/checkpoint*")) == ["checkpoint-1.pt"]
    loop.write_text(kept)
    went_on = run(*script)
    assert measured(begun + went_on) == (losses[:2], ranks[1:3])

    plans = [Plan.load(tmp_path / "run" / f"plan-{epoch}.npy") for epoch in range(2)]
    assert [(plan.metadata.planner, plan.metadata.seed) for plan in plans] == [
        ("partition", 0),
        ("partition", 1),
    ]
    checkpoint = torch.load(tmp_path / "run" / "checkpoint-2.pt", weights_only=True)
    assert set(checkpoint) == {"model", "optimizer"}
    assert not list(tmp_path.glob("run/*.part"))
