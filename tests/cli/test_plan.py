"""The command `plan`, which chooses."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.quality.metrics import percent

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


def likely(noise, common):
    """Pairs with a common part, which makes all rows alike, as before training."""
    generator = np.random.default_rng(0)
    own, other = generator.standard_normal((2, 640, 32))
    shared = common * generator.standard_normal(32)
    for name, side in (("x.npy", own), ("y.npy", own + noise * other)):
        np.save(name, (side + shared).astype(np.float32))
    return ["x.npy", "--pair", "y.npy"]


@pytest.mark.parametrize(
    ("common", "guard", "says"),
    [
        (0, "a guard at 90%", ("relative margin 0.1, as planned", "true negatives")),
        (3, "no guard, since", ("none, all pairs count, since the default", "all negatives")),
    ],
)
def test_one_judgement(common, guard, says, folder, done):
    """`plan`, `evaluate`, `check` and `report` judge by the guard that `plan` chose, or by none."""
    sides = likely(0.5, common)
    shown = done("plan", *sides, "-b", 16)
    assert f"chose: {guard}" in shown.stderr
    *_, last = shown.stderr.splitlines()
    assert last.startswith("verdict      train on this one, because its loss is ")
    assert ("true negatives" in last) == (common == 0)
    summary = json.loads(done("plan", *sides, "-b", 16, "-f", "--json").stdout)
    assert last.endswith(summary["verdict"])
    judged = json.loads(done("evaluate", "plan.npy", *sides, "--json").stdout)
    assert judged["verdict"]["train"]
    assert judged["verdict"]["guard"].startswith(says[0])
    assert f" of the gap is closed among {says[1]}" in judged["verdict"]["sentence"]
    assert judged["guard"]["limit_from"] == ("rejected" if common else "plans")
    assert judged["verdict"]["warnings"] == []
    figures = done("evaluate", "plan.npy", *sides, "--all").stdout
    assert "undefined" not in figures
    share = judged["guard"]["broken"] / judged["guard"]["pairs"]
    assert f" of {judged['guard']['pairs']:,} ({percent(share)}, " in figures
    done("report", "plan.npy", *sides, "-q")
    page = Path("report.html").read_text()
    assert f"of the gap is closed among {says[1]}" in page
    assert says[0] in page
    assert not common or "reaches the limit" not in page  # nothing is kept away then
    done("random", *sides, "-b", 16, "-o", "random.npy", "-q", "--seed", 1)
    random = json.loads(done("evaluate", "random.npy", *sides, "--json").stdout)
    assert not random["verdict"]["train"]


@pytest.mark.parametrize("common", [0, 3], ids=["guard", "no guard"])
@pytest.mark.parametrize(
    "named", [["--anchor-id", "a", "--positive-id", "p"], ["--group-column", "g"]], ids=" ".join
)
def test_the_verdict_knows_ids_and_groups(common, named, folder, done):
    """As `evaluate` with the same options, and no limit is blamed for the pairs of groups."""
    sides = likely(0.5, common)
    numbers = np.arange(640)
    table = {"a": numbers % 211, "p": numbers % 199, "g": numbers % 8}
    pq.write_table(pa.table(table), "labels.parquet")
    labels = *named, "--label-table", "labels.parquet"
    shown = done("plan", *sides, *labels, "-b", 8).stderr
    judged = json.loads(done("evaluate", "plan.npy", *sides, *labels, "--json").stdout)
    verdict = judged["verdict"]
    assert verdict["warnings"] == []
    assert "warning" not in shown
    among = "among true negatives" if not common or "g" in named else "among all negatives"
    assert among in verdict["sentence"]
    assert ("among true negatives" in shown) == (among == "among true negatives")
    if among == "among true negatives":
        shares = [float(re.search(r"false negatives \(random ([\d.]+)%\)", text)[1])
                  for text in (shown, verdict["sentence"])]  # fmt: skip
        assert shares[0] == pytest.approx(shares[1], rel=0.05)
        assert shares[1] > 1
        assert "although" not in shown
    if "g" in named:
        alone = verdict["guard"] == "groups and equal rows only"
        assert alone == (common > 0)
        assert judged["guard"]["broken"] / judged["guard"]["pairs"] < 0.02


def test_the_verdict_on_random_batches(folder, done):
    shown = done("plan", *likely(0.5, 0), "-b", 400)
    assert "chose: random, since" in shown.stderr
    assert "\nverdict      random batches would do as well: its loss is " in shown.stderr


def test_the_verdict_on_one_batch(npy, done):
    """The loss is that of random batches, whatever the order of its terms rounds to."""
    for seed in range(5):
        shown = done("plan", *npy, "-b", 48, "--seed", seed, "-fo", "p.npz").stderr
        assert "random batches would do as well: its loss is 0 nats above the loss" in shown


def test_groups_reach_the_planner(parquet, done):
    done("plan", parquet, "-b", 8, "--group-column", "id", "-o", "p.npz")
    facts = json.loads(done("inspect", "p.npz", "--json").stdout)
    assert facts["options"]["group_column"] == "id"
