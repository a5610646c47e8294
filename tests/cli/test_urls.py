"""Commands read embeddings behind URLs as they read files."""

import numpy as np
import pytest

from tests.data.test_urls import url  # noqa: F401

from .conftest import ROWS


@pytest.mark.usefixtures("npy")
def test_the_same_plan_and_figures(run, url):  # noqa: F811
    local, there = ["x.npy", "--pair", "y.npy"], [url("x.npy"), "--pair", url("y.npy")]
    run("partition", *local, "-b", 8, "-o", "local.npy")
    run("partition", *there, "-b", 8, "-o", "there.npy")
    assert np.array_equal(np.load("local.npy"), np.load("there.npy"))
    figures = [run("evaluate", "there.npy", *data, "--json").stdout for data in (local, there)]
    assert figures[0] == figures[1]
    for command in (["inspect"], ["check", "there.npy"], ["report", "there.npy"]):
        done = run(*command, *there, *["--fail-under", "loss_train=0"] * (command[0] == "check"))
        assert done.exit_code == 0, done.output
    assert f"{ROWS}" in run("inspect", *there).stdout


def test_what_is_not_there(refused, url, folder):  # noqa: F811
    (folder / "plan.npy").write_text("old")
    message = refused("partition", url("x.npy"), "-o", "plan.npy", "-f")
    assert "mock://x.npy: no such file or folder; check the" in message
    assert (folder / "plan.npy").read_text() == "old"
