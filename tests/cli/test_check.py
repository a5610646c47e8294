"""`check` as CI runs it."""

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import Plan
from batchplan.quality.metrics import judged, value_of

NOTHING_FAILS = ["--fail-under", "coverage.share_seen=1"]
FAILS = ["--fail-under", "gap_reduction=2"]


@pytest.fixture
def planned(npy, done):
    """plan.npy of partition; the arguments of a check of it."""
    done("partition", *npy, "-b", 8, "--no-guard", "-q")
    return ["plan.npy", *npy]


@pytest.fixture
def check(run):
    """Run a check; its status, standard output and standard error."""

    def check(*arguments, **options):
        result = run("check", *arguments, **options)
        return result.exit_code, result.stdout, result.stderr

    return check


@pytest.fixture
def metrics(planned, done):
    return json.loads(done("evaluate", *planned, "--json").stdout)


def test_the_gates_that_hold_and_those_that_do_not(planned, check, metrics):
    value = metrics["gap_reduction"]
    held = ["--fail-under", f"gap_reduction={value!r}", "--fail-over", f"gap_reduction={value!r}"]
    status, shown, said = check(*planned, *held)
    assert (status, said) == (0, "")
    assert shown.splitlines()[0] == (
        "plan.npy: 6 batches of 8 over 48 rows, temperature 0.05, cosine"
    )
    assert shown.splitlines()[1].split() == ["metric", "value", "required", "verdict"]
    assert [line.split()[-1] for line in shown.splitlines()[2:4]] == ["ok", "ok"]
    assert shown.splitlines()[-1] == "all 2 gates hold"
    for gate in (["--fail-under", f"gap_reduction={value + 1e-9!r}"], FAILS):
        status, shown, said = check(*planned, *NOTHING_FAILS, *gate)
        assert (status, said) == (1, "")
        assert [line.split()[-1] for line in shown.splitlines()[2:4]] == ["ok", "FAILED"]
        assert shown.splitlines()[-1] == "1 of 2 gates failed"


def test_every_metric_that_can_be_judged_is_one_of_evaluate(planned, check, done):
    measured = ["--relative-margin", 0.1]
    document = json.loads(done("evaluate", *planned, *measured, "--json").stdout)
    gates = [part for name in judged() for part in ("--fail-over", f"{name}=1e9")]
    status, shown, _ = check(*planned, *measured, *gates, "--format", "json")
    assert status == 0
    found = {gate["metric"]: gate["value"] for gate in json.loads(shown)["gates"]}
    assert found == {name: value_of(document, name) for name in judged()}


def test_false_negatives_by_their_columns(parquet, npy, check, done):
    pq.write_table(pa.table({"kind": [i % 2 for i in range(48)]}), "kinds.parquet")
    done("random", parquet, "-b", 8, "-q")
    columns = ["--group-column", "kind", "--label-table", "kinds.parquet"]
    gates = ["--fail-over", "false_negatives=1", "--fail-over", "guard.rows_affected=1"]
    status, shown, _ = check("plan.npy", parquet, *columns, *gates, "--format", "json")
    assert (status, [gate["passed"] for gate in json.loads(shown)["gates"]]) == (1, [True, False])


def test_the_usual_flow(planned, npy, check, done):
    status, shown, said = check(*planned, "--write-baseline", "base.json")
    assert (status, said) == (0, "wrote base.json\n")
    assert shown.endswith("\nno gates\n")
    against = ["--baseline", "base.json", "--fail-regress", "loss_train=0"]
    against += ["--fail-regress", "positive_probability=0%"]
    assert check(*planned, *against)[0] == 0

    done("random", *npy, "-b", 8, "-o", "random.npy", "-q")
    status, shown, said = check("random.npy", *npy, *against)
    assert (status, said) == (1, "")
    assert shown.splitlines()[1].split() == [
        "metric", "value", "baseline", "required", "verdict",
    ]  # fmt: skip
    assert shown.splitlines()[-1] == "2 of 2 gates failed"
    assert check("random.npy", *npy, "--write-baseline", "r.json", "-q")[2] == ""
    back = ["--baseline", "r.json", "--fail-regress", "loss_train=0"]
    assert check(*planned, *back)[0] == 0  # better is no regression


def test_a_baseline_says_what_it_depends_on(planned, check, metrics):
    from batchplan import load_embeddings

    check(*planned, "--write-baseline", "base.json")
    document = json.loads(Path("base.json").read_text())
    assert metrics.pop("verdict")
    assert document["evaluation"] == metrics
    assert document["fingerprint"] == load_embeddings("x.npy", "y.npy").fingerprint
    assert (document["num_rows"], document["settings"]["batch_size"]) == (48, 8)
    check(*planned, "--write-baseline", "again.json")
    assert Path("again.json").read_bytes() == Path("base.json").read_bytes()


def test_a_baseline_is_written_only_if_the_gates_hold(planned, check):
    status, _, said = check(*planned, *FAILS, "--write-baseline", "base.json")
    assert (status, said) == (1, "")
    assert not Path("base.json").exists()
    assert check(*planned, *NOTHING_FAILS, "--write-baseline", "base.json")[0] == 0
    old = ["--baseline", "base.json", "--fail-regress", "gap=0", "--write-baseline", "new.json"]
    assert check(*planned, *old)[0] == 0
    assert Path("new.json").read_bytes() == Path("base.json").read_bytes()


def test_other_embeddings_are_judged_with_a_warning(planned, check, done, pairs):
    check(*planned, "--write-baseline", "base.json")
    np.save("z.npy", pairs[1] + np.float32(0.25))
    done("partition", "x.npy", "--pair", "z.npy", "-b", 8, "-o", "z-plan.npy", "-q")
    other = ["z-plan.npy", "x.npy", "--pair", "z.npy", "--baseline", "base.json", *NOTHING_FAILS]
    status, shown, said = check(*other, "-q", "--format", "json")
    assert status == 0
    (warning,) = json.loads(shown)["warnings"]
    assert warning.startswith("base.json: measured on other embeddings (fingerprint b2:")
    assert said == f"warning: {warning}\n"


def test_what_cannot_be_compared(planned, npy, check, done, refused, pairs):
    check(*planned, "--write-baseline", "base.json")
    against = ["--baseline", "base.json", "--fail-regress", "loss_train=2%"]
    refused("check", *planned, *against, "--temperature", 0.1, parts=["temperature 0.05, got 0.1"])
    refused("check", *planned, *against, "--seed", 1, parts=["base.json", "seed 0, got 1"])
    done("random", *npy, "-b", 6, "-o", "six.npy", "-q")
    refused("check", "six.npy", *npy, *against, parts=["batch size 8, got 6"])
    np.save("fewer.npy", pairs[0][:40])
    done("random", "fewer.npy", "--single", "-b", 8, "-o", "fewer-plan.npy", "-q")
    refused("check", "fewer-plan.npy", "fewer.npy", "--single", *against, parts=["48 rows, got 40"])


def test_the_four_outputs_agree(planned, check):
    gates = [*NOTHING_FAILS, *FAILS]
    document = json.loads(check(*planned, *gates, "--format", "json")[1])
    assert (document["plan"], document["passed"]) == ("plan.npy", False)
    assert check(*planned, *gates, "--junit", "check.xml")[0] == 1
    root = ElementTree.parse("check.xml").getroot()
    failed = [case.find("failure") is not None for case in root.iter("testcase")]
    assert failed == [not gate["passed"] for gate in document["gates"]] == [False, True]
    rows = check(*planned, *gates, "--format", "markdown")[1].splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| `")]
    assert [row[0].strip("`") for row in cells] == [gate["metric"] for gate in document["gates"]]
    assert [row[-1] for row in cells] == ["ok", "**FAILED**"]
    table = check(*planned, *gates)[1].splitlines()[2:4]
    assert [line.split()[0] for line in table] == [gate["metric"] for gate in document["gates"]]


def test_junit_goes_to_a_file_too(planned, check):
    for number, (gate, status) in enumerate([(NOTHING_FAILS, 0), (FAILS, 1)]):
        found, _, said = check(*planned, *gate, "--junit", f"{number}.xml")
        assert (found, said) == (status, f"wrote {number}.xml\n")
        root = ElementTree.parse(f"{number}.xml").getroot()
        assert (root.get("tests"), root.get("failures")) == ("1", str(status))
    assert check(*planned, *FAILS, "--junit", "0.xml", "--force", "-q")[0] == 1
    assert Path("0.xml").read_bytes() == Path("1.xml").read_bytes()


def test_a_failed_verdict_stays_one(planned, check, monkeypatch):
    """If an output turns out to have no room, one line says so, and the verdict is shown."""

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, shown, said = check(*planned, *FAILS, "--junit", "a.xml")
    assert status == 1
    assert shown.endswith("\n1 of 1 gate failed\n")
    assert said.startswith("error: a.xml: ")
    assert "No space left on device" in said
    assert len(said.splitlines()) == 1
    status, shown, said = check(*planned, *NOTHING_FAILS, "--junit", "a.xml")
    assert (status, shown) == (5, "")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "nothing can fail"),
        (["--baseline", "x.npy"], "nothing can fail"),
        (["--fail-regress", "gap=1"], "needs a --baseline"),
        ([*NOTHING_FAILS, "--format", "junit"], "--format"),
        (["--fail-under"], "--fail-under"),
    ],
)
def test_usage(planned, arguments, part, check, snapshot):
    before = snapshot()
    status, shown, said = check(*planned, *arguments)
    assert (status, shown) == (2, "")
    assert part in " ".join(said.replace("│", " ").split())
    assert snapshot() == before


@pytest.mark.parametrize(
    ("gate", "part"),
    [
        (
            ["--fail-under", "speed=1"],
            "got 'speed=1', expected METRIC=VALUE, a finite number such as 0.2 or 20%; METRIC is",
        ),
        (["--fail-under", "gap"], "got 'gap', expected gap=VALUE, a finite number"),
        (["--no-guard", "--fail-over", "guard.broken=0"], "which option it needs"),
        ([*NOTHING_FAILS, "--baseline", "none.json"], "none.json: no such file"),
        ([*NOTHING_FAILS, "--baseline", "x.npy"], "x.npy: is not a baseline of this version"),
        (["--write-baseline", "a/b.json"], "does not exist"),
        (["--write-baseline", "o", "--junit", "o"], "choose two files"),
    ],
)
def test_bad_input(planned, gate, part, refused):
    code = 2 if "=VALUE, a finite number" in part else 3
    refused("check", *planned, *gate, parts=[part], code=code)


def test_a_baseline_is_replaced_only_by_force(planned, check, refused):
    assert check(*planned, "--write-baseline", "base.json")[0] == 0
    refused("check", *planned, "--write-baseline", "base.json", parts=["--force"])
    assert check(*planned, "--write-baseline", "base.json", "-f")[0] == 0
    over = ["--baseline", "base.json", "--write-baseline", "base.json", "--force"]
    refused("check", *planned, *over, parts=["would overwrite or join the input base.json"])


def test_an_undefined_metric_is_not_judged(planned, check, refused):
    Plan(np.arange(48), np.arange(49), Plan.load("plan.npy").metadata).save("alone.parquet")
    few = ["alone.parquet", *planned[1:]]
    gates = ["--fail-over", "gap=9", "--fail-over", "false_negatives=9"]
    refused("check", *few, *gates, parts=["false_negatives is undefined for this plan"])
    assert check(*few, *gates[:2])[0] == 0


def test_a_table_of_negatives_is_no_plan(npy, done, refused):
    done("hardneg", *npy, "-b", 8, "-o", "table.parquet", "-q")
    said = "table.parquet: is a table of negatives, expected a plan, which its planner makes with "
    refused("check", "table.parquet", *npy, *NOTHING_FAILS, parts=[f"{said}--as-batches"])
    refused("check", "none.npy", *npy, *NOTHING_FAILS, parts=["none.npy: no such file"])


def test_the_exit_status_of_a_process(planned, programs):
    def status(*gate):
        command = [programs / "batchplan", "check", *planned, *gate]
        return subprocess.run(command, capture_output=True).returncode

    assert status(*NOTHING_FAILS) == 0
    assert status(*FAILS) == 1
    assert status("--fail-under", "speed=1") == 2


def test_a_baseline_with_a_long_fingerprint(planned, check):
    check(*planned, "--write-baseline", "base.json")
    document = json.loads(Path("base.json").read_text()) | {"fingerprint": "b2:" + "0" * 20_000}
    Path("long.json").write_text(json.dumps(document))
    said = check(*planned, "--baseline", "long.json", *NOTHING_FAILS)[2]
    assert said.startswith("warning: long.json: measured on other embeddings (fingerprint b2:000")
    assert len(said) < 300
