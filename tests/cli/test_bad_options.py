"""Options, outputs and plans that cannot be used: one line, nothing done.

The exit status is 2 for a value that no data allow, else 3.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import typer

from batchplan.cli.app import app

COMMANDS = typer.main.get_command(app).commands
HUGE = "9" * 400
VALUES = [
    ("batch-size", "1", "batch size: got 1, expected a number of at least 2"),
    ("quantile", "nan", "expected a finite number above 0 and below 1"),
    ("neighbors", "0", "expected a number of at least 1"),
    ("neighbors", "-3", "neighbors: got -3"),
    ("neighbors", "48", "neighbors: got 48, expected fewer than the 48 rows (at most 47)"),
    ("neighbors", HUGE, "expected fewer than the 48 rows"),
    ("seed", "-1", "seed: got -1, expected an integer of 0 or more"),
    *(
        ("memory", text, f"memory: got {text!r}, expected a size such as 8GB")
        for text in ("much", "", "8XB", "-1GB", "0", "0GB", "1e9", "nan", "inf", "1 2", "8GBB")
    ),
    ("memory", HUGE, "expected a size such as 8GB"),
    ("memory", HUGE + "TB", "expected a size such as 8GB"),
    ("memory", "0.1", "memory: got '0.1', expected a size such as 8GB"),
    *(
        ("device", name, f"device: got {name!r}, expected auto, cpu, cuda or cuda:N")
        for name in ("tpu", "", "CPU", "gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "cuda:-1")
    ),
]


@pytest.mark.parametrize(
    ("option", "value", "said"), VALUES, ids=[f"{o}={v:.8}" for o, v, _ in VALUES]
)
def test_values_out_of_range(option, value, said, npy, refused):
    batches = [] if option == "batch-size" else ["-b", "8"]
    of_the_data = "the 48 rows" in said
    refused(
        "gcbs", *npy, *batches, f"--{option}={value}", parts=[said], code=3 if of_the_data else 2
    )


def test_the_default_batch_size_may_be_too_large(npy, refused):
    refused("random", *npy, parts=["batch size: got 64, expected at most the 48 rows of the data"])


@pytest.mark.parametrize("command", ["random", "inspect", "evaluate"])
def test_shared_options_are_refused_by_every_command(command, npy, refused):
    Path("p.txt").write_text("0\n1\n")
    arguments = [command, *(["p.txt"] * (command == "evaluate")), *npy]
    refused(*arguments, "--seed", "-1", parts=["seed: got -1"], code=2)
    refused(*arguments, "--memory", "much", parts=["memory: got 'much'"], code=2)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("temperature", "0", "temperature: got 0.0, expected a finite number"),
        ("random-trials", "1", "got 1, expected a number of at least 2"),
        ("batch-size", "49", "batch size: got 49, expected at most the number of rows, 48"),
    ],
)
def test_values_that_evaluate_refuses(option, value, said, npy, refused):
    Path("p.txt").write_text("\n".join(map(str, range(48))))
    batches = [] if option == "batch-size" else ["-b", "8"]
    refused(
        "evaluate",
        "p.txt",
        *npy,
        *batches,
        f"--{option}={value}",
        parts=[said],
        code=3 if batches == [] else 2,
    )


# Outputs


@pytest.mark.parametrize("name", ["plan.csv", "plan", "plan.npy.gz", ""])
def test_unknown_suffix(name, npy, refused):
    refused("random", *npy, "-b", 8, "-o", name, parts=[name, "expected one of .npy, .parquet"])


@pytest.mark.parametrize("name", ["p.npy", "p.parquet", "p.npz", "p.jsonl", "p.txt"])
def test_an_existing_file_needs_force(name, npy, refused, done):
    Path(name).write_bytes(b"old")
    refused("random", *npy, "-b", 8, "-o", name, parts=[f"{name}: exists already", "--force"])
    done("random", *npy, "-b", 8, "-o", name, "--force")
    assert Path(name).read_bytes() != b"old"


def test_an_existing_sidecar_needs_force(npy, refused):
    Path("p.npy.json").write_text("notes")
    refused("random", *npy, "-b", 8, "-o", "p.npy", parts=["p.npy.json: exists already"])


@pytest.mark.parametrize(
    "command",
    [
        "gcbs gone.npy --pair y.npy -o old",
        "gcbs x.npy --pair gone.npy -o old",
        "refine gone x.npy --pair y.npy -o old",
        "report gone x.npy --pair y.npy -o old.html",
        "report old gone.npy -o old.html",
        "check old gone.npy --fail-under loss_train=1 --junit old.xml",
        "concat gone x.npy -o old",
        "materialize gone x.parquet -o kept",
        "embed model gone.parquet --columns a -o kept",
    ],
)
def test_an_input_that_is_missing_is_told_of_first(command, npy, refused):
    Path("kept").mkdir()
    for name in ("old.npy", "old.html", "old.xml", "kept/file"):
        Path(name).write_bytes(b"old")
    words = [{"old": "old.npy", "gone": "gone.npy"}.get(word, word) for word in command.split()]
    (missing,) = {word for word in words if word.startswith("gone")}
    refused(*words, parts=[f"{missing}: no such file or folder"])


def test_the_output_is_refused_before_any_row_is_read(refused):
    Path("p.npy").write_text("old")
    np.save("broken.npy", np.full((48, 8), np.nan, np.float32))
    command = ["gcbs", "broken.npy", "--single", "-o"]
    refused(*command, "p.npy", parts=["p.npy: exists already"])
    refused(*command, "q.npy", parts=["NaN"])


def test_folders_that_are_missing(npy, refused):
    refused("random", *npy, "-o", "none/p.npy", parts=["none does not exist; create it first"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folders_that_are_read_only(npy, refused):
    Path("locked").mkdir(mode=0o500)
    refused("random", *npy, "-o", "locked/p.npy", parts=["locked is not writable"])


def test_outputs_that_are_no_files(npy, refused):
    Path("d.npy").mkdir()
    refused("random", *npy, "-f", "-o", "d.npy", parts=["d.npy: is a directory"])
    os.mkfifo("f.txt")
    refused("random", *npy, "-f", "-o", "f.txt", parts=["f.txt: is not a regular file"])


# Plans


def plan(name, text):
    Path(name).write_text(text)
    return name


def test_plans_of_other_data(npy, pairs, refused, done):
    done("random", *npy, "-b", 8, "-o", "p.npy")
    np.save("fewer.npy", pairs[0][:40])
    np.save("other.npy", pairs[0] + 1)
    made_for = ["number of rows of the plan is 48, expected 40; give the data it was made for"]
    refused("evaluate", "p.npy", "fewer.npy", "--single", parts=["p.npy", *made_for])
    for other in (["other.npy", "--single"], ["x.npy", "--single"], ["y.npy", "--pair", "x.npy"]):
        said = refused("evaluate", "p.npy", *other, parts=["made for data with fingerprint b2:"])
        assert "or plan again" in said


REPEATED = "0\n0\n" + "\n".join(map(str, range(2, 48)))


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("p.txt", "\n".join(map(str, range(49))), ["1 row numbers outside 0 to 47", "is 48 at"]),
        ("p.txt", REPEATED, ["1 rows repeated within a batch, first row 0 in batch 0"]),
        ("p.npy", "rubbish", ["p.npy: is not a readable NPY array"]),
        ("p.csv", "0\n1\n", ["p.csv: suffix '.csv', expected one of .npy, .parquet"]),
    ],
)
def test_plans_that_cannot_be_used(name, text, parts, npy, refused):
    options = ["-b", 8] if name.endswith((".txt", ".npy")) else []
    refused("evaluate", plan(name, text), *npy, *options, parts=parts)


def test_plans_whose_rows_do_not_fit_their_metadata(npy, refused, done):
    done("random", *npy, "-b", 8, "-o", "p.txt")
    rows = Path("p.txt").read_text().split()
    for wrong in (rows[:-1], [rows[1], *rows[1:]], rows[::-1]):
        plan("p.txt", "\n".join(wrong))
        refused("evaluate", "p.txt", *npy, parts=["p.txt.json", "the metadata belong to other"])
        refused("inspect", "p.txt", parts=["p.txt.json", "the metadata belong to other"])
    plan("p.txt.json", "{")
    refused("inspect", "p.txt", parts=["p.txt.json: metadata is not JSON"])


def test_bare_rows_need_a_batch_size(npy, refused, done):
    np.save("p.npy", np.arange(48))
    plan("p.txt", "\n".join(map(str, range(48))))
    for name in ("p.npy", "p.txt"):
        refused("evaluate", name, *npy, parts=["the batch size is unknown; pass --batch-size"])
        done("evaluate", name, *npy, "--batch-size", 8)
    refused("inspect", "p.txt", parts=["pass --batch-size"])
    for name in ("p.npy", "p.txt"):
        assert "num rows         48\n" in done("inspect", name, "-b", 8).stdout


def test_another_batch_size_than_the_plan_has(npy, refused, done):
    done("random", *npy, "-b", 8, "-o", "p.npz")
    refused("evaluate", "p.npz", *npy, "-b", 16, parts=["is 8, expected 16"])


def test_missing_plans(npy, refused):
    Path("d.npy").mkdir()
    refused("evaluate", "none.npy", *npy, parts=["none.npy: no such file or folder"])
    refused("evaluate", "d.npy", *npy, parts=["d.npy: is not a regular file"])
    refused("inspect", "none.npz", parts=["none.npz: no such file or folder"])


PYDANTIC = "pydantic", "Input should be", "unable to parse", "Value error", "validation error"


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("value", ["?", "1.5.2", ""])
def test_every_option_refuses_a_value_in_our_own_words(name, value, run, snapshot):
    """Numbers and choices say what they got or expect; nothing says what a library says."""
    before, refused = snapshot(), []
    command = COMMANDS[name]
    context = typer.Context(command, info_name=name)
    for option in command.params:
        if option.param_type_name != "option" or option.is_flag:
            continue
        arguments = ["no.npy"] * sum(one.param_type_name == "argument" for one in command.params)
        result = run(name, *arguments, option.opts[0], value)
        assert result.exit_code in (2, 3), (option.opts, result.output)
        assert not [words for words in PYDANTIC if words in result.stderr], result.stderr
        if re.search(r"<(int|float|\w+\|.*)>", option.get_help_record(context)[0]):
            assert result.exit_code == 2, result.stderr
            words = "expected (an integer|a number)$|is not (one of|a valid integer or auto)"
            assert re.search(words, result.stderr.strip().rstrip("."), re.MULTILINE)
            refused.append(option.name)
    assert refused or name in ("demo", "warmup")
    assert snapshot() == before
