"""The command `compare`: real planners, each in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from batchplan import Plan
from batchplan.cli.app import app

SETTINGS = """
[random]
[shuffled]
epoch = 12
["too large"]
planner = "random"
batch_size = 49
[gcbs]
"""
MADE, FAILED = ["random", "shuffled", "gcbs"], "too large"


@pytest.fixture(scope="module")
def kept(tmp_path_factory, pairs):
    """A folder with data, settings and the results of a comparison; and what it printed."""
    folder = tmp_path_factory.mktemp("kept")
    for name, side in zip("xy", pairs, strict=True):
        np.save(folder / f"{name}.npy", side)
    pq.write_table(pa.table({"group": [i // 2 for i in range(48)]}), folder / "labels.parquet")
    (folder / "s.toml").write_text(SETTINGS)
    return folder, json.loads(compare(folder, "--json").stdout)


def compare(folder, *more):
    """Run the comparison in a folder, where it starts a process for each planner."""
    command = ["compare", "x.npy", "--pair", "y.npy", "--settings", "s.toml", "-b", "8"]
    command += ["--folder", "kept", "-f", "--seed", "3", "--random-trials", "2", *more]
    with chdir(folder):
        done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return done


def test_plans_are_ranked_by_their_hardness(kept):
    _, found = kept
    assert (found["num_rows"], found["dim"], found["seed"]) == (48, 8, 3)
    scores = [plan["evaluation"]["hardness"] for plan in found["plans"]]
    assert scores == sorted(scores, reverse=True)
    assert found["train_on"] in (None, *MADE)
    assert found["verdict"].startswith(f"train on {found['train_on'] or 'none of these'}")
    assert found["guard"] == (
        "relative margin 0.1, the default, for all plans; planned "
        + ", ".join(f"{plan['name']} with none" for plan in found["plans"])
    )
    assert [plan["rank"] for plan in found["plans"]] == [1, 2, 3]
    assert {plan["name"] for plan in found["plans"]} == set(MADE)
    for plan in found["plans"]:
        assert (plan["options"]["batch_size"], plan["evaluation"]["batch_size"]) == (8, 8)
        assert plan["cost"]["seconds"] > 0
        assert plan["cost"]["peak_memory_bytes"] > 10**7


def test_a_planner_that_fails_leaves_the_others(kept):
    folder, found = kept
    (failure,) = found["failures"]
    assert (failure["name"], failure["planner"], failure["status"]) == (FAILED, "random", 3)
    assert failure["error"].startswith("batch size: got 49, expected at most the 48 rows")
    assert not (folder / "kept" / f"{FAILED}.npz").exists()


def test_plans_and_evaluations_are_those_of_the_commands_alone(kept, done, monkeypatch):
    folder, found = kept
    monkeypatch.chdir(folder)
    data = ["x.npy", "--pair", "y.npy", "--seed", 3]
    own = {"shuffled": ["--epoch", 12], "random": [], "gcbs": []}
    for plan in found["plans"]:
        name = plan["name"]
        done(name, *data, "-b", 8, *own[name], "-f", "-o", f"{name}-alone.npz")
        assert Path(f"{name}-alone.npz").read_bytes() == Path(f"kept/{name}.npz").read_bytes()
        alone = done("evaluate", f"kept/{name}.npz", *data, "--random-trials", 2, "--json")
        assert json.loads(alone.stdout) == {**plan["evaluation"], "verdict": plan["verdict"]}


def test_the_table_shows_all_of_it(kept):
    folder, _ = kept
    measured = ["--group-column", "group", "--label-table", "labels.parquet"]
    measured += ["--relative-margin", "0.1"]
    shown = compare(folder, *measured, "--planners", f"gcbs,{FAILED}")
    assert [line.partition(",")[0] for line in shown.stderr.splitlines()] == [
        "planned: gcbs", f"planned: {FAILED}",
    ]  # fmt: skip
    alone = compare(folder, "--planners", "gcbs", "--quiet")
    assert alone.stderr == ""
    assert alone.stdout.splitlines().count("") == 1  # before the guard
    *table, empty, guard, verdict = shown.stdout.splitlines()
    assert (empty, guard[:25]) == ("", "guard    relative margin ")
    assert verdict.startswith("verdict  train on ")
    head, plan, chance, failure = (line.split("  ") for line in table)
    heads = ["planner", "hardness", "false negatives", "loss", "oracle", "reduction", "seen",
             "seconds", "memory"]  # fmt: skip
    assert [cell.strip() for cell in head if cell.strip()] == heads
    cells = [cell.strip() for cell in plan if cell.strip()]
    assert (cells[:2], len(cells)) == (["1", "gcbs"], len(heads) + 1)
    assert next(cell.strip() for cell in chance if cell.strip()) == "random batches"
    assert (
        failure[-1].strip().startswith("failed: batch size: got 49, expected at most the 48 rows")
    )


def test_all_pairs_rank_where_no_guard_is_measured(kept):
    folder, _ = kept
    found = json.loads(compare(folder, "--no-guard", "--json").stdout)
    scores = [plan["evaluation"]["hardness"] for plan in found["plans"]]
    assert scores == [plan["evaluation"]["gap_reduction"] for plan in found["plans"]]
    assert scores == sorted(scores, reverse=True)


# What stands in the folder already


def test_a_plan_is_replaced_only_with_force(npy, refused, done):
    command = ["compare", *npy, "--planners", "random", "--folder", "kept", "--random-trials", 2]
    done(*command, "-b", 8)
    before = Path("kept/random.npz").read_bytes()
    refused(*command, "-b", 4, parts=["kept/random.npz: exists already; replace it with --force"])
    assert Path("kept/random.npz").read_bytes() == before
    done(*command, "-b", 4, "--force")
    assert Plan.load("kept/random.npz").batch_size == 4


def test_folders_that_cannot_be_one(npy, refused):
    Path("file").write_text("")
    command = ["compare", *npy, "--planners", "random", "-b", 8, "--folder"]
    refused(*command, "file", parts=["file: is a file, expected a folder"])
    refused(*command, "none/kept", parts=["none/kept: folder", "none does not exist"])
    refused(*command, "", parts=["folder: got an empty path"])
    Path("shards").mkdir()
    Path("x.npy").rename("shards/x.npy")
    data = ["shards", "--pair", "y.npy"]
    command[1:4] = data
    refused(
        *command,
        "shards/kept",
        parts=["shards/kept/random.npz: would overwrite or join the input shards"],
    )
    refused(
        *command, "shards", parts=["shards/random.npz: would overwrite or join the input shards"]
    )


def test_settings_are_checked_before_anything_runs(npy, refused):
    Path("s.toml").write_text("[random]\n[gcbs]\nquantile = 2\n")
    command = ["compare", *npy, "--settings", "s.toml", "-b", 8, "--folder", "kept"]
    refused(*command, parts=["s.toml: [gcbs]: quantile: got 2"])
    refused("compare", *npy, "--planners", "random,best", parts=["planners: got 'best'"], code=2)


# No plan at all


def test_all_fail(npy, run):
    found = run("compare", *npy, "--planners", "random,shuffled", "-b", 49)
    assert found.exit_code == 3
    lines = found.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["random", "failed:"], ["shuffled", "failed:"]]
    assert "batch size: got 49, expected at most the 48 rows" in lines[0]
    found = run("compare", *npy, "--planners", "bcs", "-b", 8, "--memory", "200KB", "--json")
    assert found.exit_code == 4
    document = json.loads(found.stdout)
    assert (document["plans"], document["failures"][0]["status"]) == ([], 4)


# Interrupts


def children_of(process):
    found = []
    for task in Path(f"/proc/{process.pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += task.read_text().split()
    return found


def runs(process):
    """Whether a process has not ended; its parent may not have asked how."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_middle(number, folder):
    """What interrupts `compare` ends its child too; a child that is killed is a failure.

    Other signals interrupt as SIGINT does: tests/cli/test_signals.py."""
    np.save("x.npy", np.random.default_rng(0).standard_normal((2000, 16), np.float32))
    command = [
        "compare",
        "x.npy",
        "--single",
        "--planners",
        "random,gcbs",
        "--folder",
        "kept",
        "--json",
    ]
    command += ["--random-trials", "2"] if number == signal.SIGKILL else []
    process = subprocess.Popen(
        [sys.executable, "-m", "batchplan", *command], stdout=-1, stderr=-1, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while not (Path("kept/random.npz").exists() and children_of(process)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (child,) = map(int, children_of(process))
        os.kill(child if number == signal.SIGKILL else process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert {path.name for path in Path("kept").iterdir()} == {"random.npz"}
    deadline = time.monotonic() + 60
    while runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    logged = [line.partition(",")[0] for line in err.splitlines()]
    if number != signal.SIGKILL:
        assert (process.returncode, out) == (130, "")
        assert logged == ["planned: random", "interrupted"]
    else:
        assert (process.returncode, logged) == (0, ["planned: random", "planned: gcbs"])
        (failure,) = json.loads(out)["failures"]
        assert (failure["name"], failure["status"]) == ("gcbs", -signal.SIGKILL)
        assert failure["error"] == "killed by SIGKILL, out of memory perhaps"
