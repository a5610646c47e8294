"""--sample: estimates and their standard errors, as users see them."""

import json
import re

import numpy as np
import pytest

SAMPLE = ["--sample", 64, "--random-trials", 2]
SAID = "figures over all rows are estimates from 64 sampled rows, ± their standard errors; "


@pytest.fixture
def planned(folder, done):
    """plan.npy of 300 pairs; the arguments that name them."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((300, 8)).astype(np.float32)
    np.save("x.npy", x)
    np.save("y.npy", x + draw.standard_normal(x.shape).astype(np.float32))
    done("partition", "x.npy", "--pair", "y.npy", "-b", 10, "--no-guard", "-q")
    return ["plan.npy", "x.npy", "--pair", "y.npy"]


def test_evaluate(planned, done):
    shown = done("evaluate", *planned, *SAMPLE, "--all").stdout
    assert (
        shown.partition("\n\n")[2].splitlines()[0]
        == f"loss in nats; {SAID}--sample 0 compares all rows"
    )
    assert re.search(
        r"^gap reduction, all pairs +\d+\.\d% ± [\d.]+% of the gap of random", shown, re.M
    )
    document = json.loads(done("evaluate", *planned, *SAMPLE, "--json").stdout)
    assert document["sample"] == 64
    assert document["standard_errors"]["gap_reduction"] > 0
    exact = done("evaluate", *planned, "--random-trials", 2, "--json").stdout
    assert exact == done("evaluate", *planned, *SAMPLE[2:], "--sample", 0, "--json").stdout
    assert "standard_errors" not in exact


def test_check(planned, done, run):
    document = json.loads(done("evaluate", *planned, *SAMPLE, "--json").stdout)
    value, error = document["gap_reduction"], document["standard_errors"]["gap_reduction"]
    for outcome, limit in {"ok": value, "FAILED": value + error / 2}.items():
        result = run("check", *planned, *SAMPLE, "--fail-under", f"gap_reduction={limit!r}")
        assert result.exit_code == (outcome == "FAILED")
        lines = result.stdout.splitlines()
        assert SAID in lines[0]
        assert lines[2].split()[-1] == outcome
        assert " ± " in lines[2]


def test_baselines_of_a_sample_and_of_all_rows(planned, done):
    for name, options in (("all.json", ["--sample", 0]), ("some.json", SAMPLE[:2])):
        done("check", *planned, "--random-trials", 2, *options, "--write-baseline", name)
        for again in (["--sample", 0], SAMPLE[:2]):
            regress = ["--baseline", name, "--fail-regress", "gap_reduction=50%"]
            done("check", *planned, "--random-trials", 2, *again, *regress)
    done("check", *planned, *SAMPLE, "--baseline", "some.json", "--fail-regress", "gap=0")


def test_compare(planned, done):
    shown = done("compare", *planned[1:], *SAMPLE, "--planners", "random,shuffled", "-b", 10, "-q")
    assert shown.stdout.startswith(f"{SAID}--sample 0 compares all rows; all plans share")
    assert shown.stdout.count("% ± ") == 7


def test_report(planned, done, folder):
    draw = np.load("x.npy")
    np.save("one.npy", draw)
    done("shuffled", "one.npy", "--single", "-b", 10, "-q", "-o", "own.npy")
    done("report", "own.npy", "one.npy", "--single", *SAMPLE, "-o", "page.html", "-q")
    page = (folder / "page.html").read_text()
    assert SAID in page
    assert "% ± " in page
