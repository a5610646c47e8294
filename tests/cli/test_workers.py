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


def test_refusals(npy, run, refused):
    assert run("random", *npy, "-b", 4, "--scope", "node").exit_code == 2
    says = "3 rows are left for the last step of 5 devices"
    refused("random", *npy, "-b", 9, "--world-size", 5, parts=[says])
