"""The command `report`, as a user runs it."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from batchplan.cli.reporting import plan_names
from batchplan.quality.metrics import percent

FEW = ("--random-trials", 2)


@pytest.fixture
def plans(parquet, done):
    """Two plans of pairs.parquet."""
    done("random", parquet, "-b", 8, "-o", "random.npy")
    done("gcbs", parquet, "-b", 8, "--neighbors", 3, "-o", "gcbs.npy")
    return ["random.npy", "gcbs.npy"]


def test_a_page_of_several_plans(plans, parquet, done, snapshot):
    before = snapshot()
    result = done("report", *plans, parquet, "-o", "page.html", "--png", "png", *FEW)
    assert result.stdout == ""
    assert "page.html" in result.stderr
    text = Path("page.html").read_text("utf-8")
    assert "What 2 plans do to the batches" in text
    assert '<h2>gcbs.npy</h2>\n<p class="what">gcbs</p>' in text
    pictures = {
        Path("png", f"{name}.png")
        for name in (
            "losses", "histogram",
            "similarity-original", "similarity-random", "similarity-1", "similarity-2",
        )
    }  # fmt: skip
    assert snapshot().keys() - before.keys() == {Path("page.html"), Path("png"), *pictures}
    assert str(Path.cwd()) not in text


def test_the_same_command_writes_the_same_bytes(plans, parquet, done, snapshot):
    command = ("report", *plans, parquet, "--png", "png", "-q", *FEW)
    assert done(*command).output == ""
    before = snapshot()
    assert Path("report.html") in before
    done(*command, "--force")
    assert snapshot() == before


def test_shards_of_two_sides_and_what_evaluate_says_of_them(npy, done):
    done("random", *npy, "-b", 8)
    done("report", "plan.npy", *npy, "--relative-margin", 0.1, *FEW)
    found = json.loads(
        done("evaluate", "plan.npy", *npy, "--relative-margin", 0.1, *FEW, "--json").stdout
    )
    guard, text = found["guard"], Path("report.html").read_text("utf-8")
    for number in (
        f"{found['loss_train']:.4f}",
        f"{found['loss_random']:.4f}",
        f"{found['gap_reduction']:z.1%}",
        f"{guard['broken']:,} of {guard['pairs']:,} ({percent(found['false_negatives'])}, "
        f"{percent(guard['false_negatives_random'])} at random)",
    ):
        assert f">{number}" in text


def test_plans_of_a_file_without_metadata(plans, parquet, done):
    Path("bare.txt").write_text("\n".join(map(str, range(48))))
    done("report", "bare.txt", *plans, parquet, "-b", 8, *FEW)
    assert "planner unknown" in Path("report.html").read_text("utf-8")


def test_names_tell_plans_apart():
    assert plan_names(["a.npy", "b/a.npy", "c/d/e.npy"]) == ["a.npy", "b/a.npy", "e.npy"]
    assert plan_names(["a.npy"] * 3) == ["a.npy", "a.npy (2)", "a.npy (3)"]
    assert plan_names(["a (2)", "a", "a"]) == ["a (2)", "a", "a (3)"]
    assert plan_names(["x/\x1b[31m.npy"]) == ["\\x1b[31m.npy"]


@pytest.mark.parametrize("arguments", [["gcbs.npy"], []])
def test_embeddings_are_needed(arguments, plans, run, snapshot):
    before = snapshot()
    result = run("report", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "plans and then their embeddings" in result.stderr or "Missing" in result.stderr
    assert snapshot() == before


def test_inputs_that_cannot_be_shown(plans, parquet, done, refused):
    one, two = plans
    refused("report", parquet, two, parts=["gcbs.npy: is a plan", "give plans first"])
    refused("report", "absent.npy", parquet, parts=["absent.npy"])
    refused("report", parquet, parquet, parts=["pairs.parquet"])
    done("hardneg", parquet, "-b", 8, "-o", "table.parquet")
    refused("report", "table.parquet", parquet, parts=["table of negatives"])
    done("random", parquet, "-b", 16, "-o", "larger.npy")
    refused("report", one, "larger.npy", parquet, parts=["batch sizes", "larger.npy 16"])
    refused("report", *[one] * 7, parquet, parts=["got 7 plans", "1 to 6"])
    refused("report", one, parquet, "--random-trials", 1, parts=["random trials"], code=2)
    refused("report", one, "-", parts=["standard input"])


def test_outputs_that_cannot_be_written(plans, parquet, refused):
    report = ("report", *plans, parquet)
    refused(*report, "-o", "plan.npy", parts=["plan.npy", ".html"])
    refused(*report, "-o", "absent/page.html", parts=["does not exist"])
    refused(*report, "--png", "absent/png", parts=["does not exist"])
    refused(*report, "--png", "gcbs.npy", parts=["is a file"])
    Path("page.html").write_text("mine")
    refused(*report, "-o", "page.html", parts=["exists already", "--force"])
    Path("png").mkdir()
    Path("png/losses.png").write_text("mine")
    refused(*report, "--png", "png", parts=["exists already", "--force"])
    shutil.copy(parquet, "data.html")
    labels = ["--label-table", "data.html", "--group-column", "id"]
    refused(*report, *labels, "-o", "data.html", "--force", parts=["overwrite"])


def test_a_failed_write_leaves_no_file(plans, parquet, run, monkeypatch, snapshot):
    import os

    before = snapshot()

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = run("report", *plans, parquet, "--png", "png", *FEW)
    assert result.exit_code == 5
    assert "No space left" in result.stderr
    assert snapshot() == before


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named(package, plans, parquet, refused, monkeypatch):
    for name in [*sys.modules]:
        if name.startswith("batchplan.report"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    says = [f"{package}: is not installed; run pip install 'batchplanner[report]'"]
    refused("report", *plans, parquet, *FEW, parts=says, code=4)
