"""The command `plan`, which chooses."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

LARGER = np.random.default_rng(1).standard_normal((2, 96, 8)).astype(np.float32)


@pytest.fixture
def sides(folder):
    np.save("my x.npy", LARGER[0])
    np.save("y.npy", LARGER[0] + LARGER[1] / 4)
    return ["my x.npy", "--pair", "y.npy"]


def chosen(shown):
    (line,) = [line for line in shown.stderr.splitlines() if line.startswith("full command: ")]
    return shlex.split(line.removeprefix("full command: "))


@pytest.mark.parametrize(
    "options",
    [
        ["-b", 8],
        ["-b", 8, "--seed", 3, "--temperature", 0.1, "--tail", "drop", "-o", "p.npz"],
        ["-b", 8, "--world-size", 2, "--scope", "global", "--batch-order", "planned"],
        ["-b", 64],
    ],
)
def test_the_full_command_writes_the_same_plan(options, sides, done):
    shown = done("plan", *sides, *options)
    made = {path.name: path.read_bytes() for path in Path().glob("p*.np*")}
    assert made
    program, *command = chosen(shown)
    assert program == "batchplan"
    assert command[0] == ("random" if 64 in options else "partition")
    done(*command, "--force")
    assert {path.name: path.read_bytes() for path in Path().glob("p*.np*")} == made


def test_it_says_what_it_chose_and_why(sides, done):
    shown = done("plan", *sides, "-b", 8)
    choices = [line for line in shown.stderr.splitlines() if line.startswith("chose: ")]
    assert len(choices) == 3
    assert "--mega-batches 2" in shown.stderr
    assert "--relative-margin 0.1" in shown.stderr
    assert done("plan", *sides, "-b", 8, "-q", "-f").output == ""
    summary = json.loads(done("plan", *sides, "-b", 8, "-f", "--json").stdout)
    assert shlex.split(summary["command"]) == chosen(shown)
    assert summary["planner"] == "partition"


def test_groups_reach_the_planner(parquet, done):
    done("plan", parquet, "-b", 8, "--group-column", "id", "-o", "p.npz")
    facts = json.loads(done("inspect", "p.npz", "--json").stdout)
    assert facts["options"]["group_column"] == "id"
