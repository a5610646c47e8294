"""Planning for several devices on the command line."""

import json

import pytest

from batchplan.plans import Plan


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], "12 of 4\n"),
        (["--world-size", "3"], "12 of 4 for 3 devices\n"),
        (["--world-size", "3", "--scope", "global"], "4 of 12 across 3 devices\n"),
    ],
)
def test_the_summary_counts_devices(npy, done, options, shown):
    result = done("random", *npy, "-b", 4, *options)
    (line,) = (one for one in result.stderr.splitlines(True) if one.startswith("batches"))
    assert line.split(None, 1)[1] == shown


def test_json_and_the_file_tell_the_devices(npy, done):
    result = done("gcbs", *npy, "-b", 4, "--world-size", 3, "--scope", "global", "--json")
    told = json.loads(result.stdout)
    wanted = {"num_batches": 4, "batch_size": 12, "world_size": 3, "scope": "global"}
    assert {name: told[name] for name in wanted} == wanted
    metadata = Plan.load("plan.npy").metadata
    assert (metadata.batch_size, metadata.world_size, metadata.scope) == (12, 3, "global")
    assert metadata.options["batch_size"] == 4


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (["--world-size", "0"], 3, "world size: got 0, expected a number of at least 1"),
        (["--world-size", "two"], 2, "--world-size"),
        (["--scope", "node"], 2, "node"),
        (["--world-size", "13"], 3, "got 4 x 13 devices, which is 52 rows per step"),
        (["-b", "9", "--world-size", "5"], 3, "3 rows are left for the last step of 5 devices"),
    ],
)
def test_refusals(npy, run, folder, options, status, says):
    result = run("random", *npy, "-b", 4, *options)
    assert result.exit_code == status
    assert says in result.stderr
    assert not (folder / "plan.npy").exists()
