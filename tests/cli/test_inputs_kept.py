"""No output of any command is written over what is read, however the two are called.

Options that name files are taken from the commands themselves, so that a new one is tried too.
"""

import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from batchplan.cli.app import app
from batchplan.cli.planning import planner_command
from batchplan.cli.statuses import Commands
from batchplan.options import option
from batchplan.planners import Planner
from batchplan.planners.random import RandomOptions, random

COMMANDS = typer.main.get_command(app).commands
READ = {"FILE", "EMBEDDINGS", "DATA", "PLAN", "PLAN... EMBEDDINGS"}  # as help calls them
TEXTS = {"memory", "device", "planners", "restart", "ray"}
TEXTS |= {"fail_under", "fail_over", "fail_regress"}
TEXTS |= {"model", "columns", "prompt", "prompt_text"}  # of embed
TEXTS |= {"texts"}  # of report

# What each option that writes may be given, and the files that are then written.
WRITTEN = {
    "output": ("out.npy", ["out.npy", "out.npy.json"]),
    "junit": ("out.xml", ["out.xml"]),
    "write_baseline": ("out.json", ["out.json"]),
    "png": ("pictures", ["pictures/losses.png"]),
    "atlas": ("out.parquet", ["out.parquet"]),
    "folder": ("kept", ["kept/random.npz"]),
}
OTHERS = {
    "report": {**WRITTEN, "output": ("out.html", ["out.html"])},
    "materialize": {"output": ("out.npy", ["out.npy"])},  # a folder
    "embed": {"output": ("out.npy", ["out.npy"])},
}

# What a command, or an option that reads, does not go without.
NEEDS = {
    "check": ["--fail-under", "gap=0"],
    "compare": ["--planners", "random"],
    "embed": ["--columns", "text"],
    "hardneg": ["--as-batches"],
    "scns": ["--as-batches"],
    "class_embeddings": ["--level", "class", "--label-column", "kind"],
    "label_table": ["--group-column", "kind"],
    "known": ["--anchor-id", "kind", "--positive-id", "kind"],
    "plans": ["--trace", "traces"],
    "reference": ["--relative-margin", "0.1"],
    "reference_pair": ["--relative-margin", "0.1", "--reference", "other.npy"],
}
ANY_TEXT = (str, str | None, list[str], list[str] | None)
SHARDS = {"embeddings", "inputs", "data", "pair"}  # may be a folder or a glob
REFUSED = "would overwrite or join the input"


def texts(name):
    """The options of a command that are given any text, or several."""
    command = COMMANDS[name]
    hints = get_type_hints(command.callback)
    return [one for one in command.params if hints[one.name] in ANY_TEXT]


def read_by(name):
    return [one for one in texts(name) if one.metavar in READ and one.name not in WRITTEN]


def written_by(name):
    known = OTHERS.get(name, WRITTEN)
    return {one.name: known[one.name] for one in COMMANDS[name].params if one.name in known}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_whether_it_names_a_file(name):
    """One of a file needs kind="path", one of a column kind="column", others stand in TEXTS."""
    for one in texts(name):
        told = one.metavar in {*READ, "FOLDER", "COLUMN"} or one.name in WRITTEN
        assert told != (one.name in TEXTS), one.name


# How an input is named, and which of its files an output shall not overwrite.
def as_file():
    return "in.npy", "in.npy"


def as_link():
    Path("link.npy").symlink_to("in.npy")
    return "link.npy", "in.npy"


def as_sidecar():
    Path("in.npy.json").write_text("{}")
    return "in.npy", "in.npy.json"


def as_glob():
    return "[i]n.np?", "in.npy"


def as_folder():
    Path("shards").mkdir()
    Path("shards/1.npy").symlink_to(Path("in.npy").absolute())
    return "shards", "in.npy"


FORMS = [as_file, as_link, as_sidecar]


def arguments(name, option, given):
    """A command line in which ``option`` names ``given``."""
    line = [name, *NEEDS.get(name, []), *NEEDS.get(option.name, [])]
    places = [one for one in COMMANDS[name].params if not one.opts[0].startswith("-")]
    if option not in places:
        line += [option.opts[0], given]
    for one in places:
        line.append(given if one is option else "other.npy")
        if one.metavar == "PLAN... EMBEDDINGS":
            line.append("other.npy")
    return line


def contents():
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [name for name in COMMANDS if written_by(name)])
def test_inputs_are_kept(name, folder, run, monkeypatch):
    """Before anything is read: no input is more than a few letters here."""
    tried = 0
    for read, (to, (value, files)) in product(read_by(name), written_by(name).items()):
        forms = [*FORMS, *[as_glob, as_folder] * (read.name in SHARDS)]
        for form, file in product(forms, files):
            room = folder / f"room {tried}"
            room.mkdir()
            monkeypatch.chdir(room)
            Path("in.npy").write_text("[random]\n" if read.name == "settings" else "input")
            Path("other.npy").write_text("other")
            Path("traces").mkdir()
            given, victim = form()
            Path(file).parent.mkdir(exist_ok=True)
            os.symlink(Path(victim).absolute(), file)
            line = arguments(name, read, given)
            line += [f"--{to.replace('_', '-')}", value, "--force"]
            before = contents()
            result = run(*line)
            assert (result.exit_code, result.stdout) == (3, ""), (line, result.output)
            assert result.stderr == f"error: {file}: {REFUSED} {given}; choose another\n", line
            assert contents() == before
            tried += 1
    assert tried


def test_what_a_glob_stands_for(npy, parquet, refused, done):
    """The commands as they were typed when inputs were lost."""
    for line in (
        ["random", "[xy].npy", "-o", "y.npy"],
        ["random", "x.npy", "--pair", "[y]*.npy", "-o", "y.npy"],
        ["random", "p*.parquet", "-o", "pairs.parquet"],
        ["random", "**/[xy].npy", "-o", "x.npy"],
    ):
        refused(*line, "-b", 8, "-f", parts=[REFUSED])


def test_what_a_glob_would_stand_for(npy, refused, done):
    """An output that the same command would read the next time."""
    Path("shards/deep").mkdir(parents=True)
    os.replace("x.npy", "shards/1.npy")
    Path("door").symlink_to("shards")
    for pattern, output in (
        ("shards", "shards/plan.npy"),
        ("shards/*.npy", "shards/plan.npy"),
        ("shards/*.npy", "door/plan.npy"),
        ("d*/*", "shards/plan.npy"),
        ("shards/[0-9].npy", "shards/2.npy"),
        ("**/*.npy", "shards/deep/plan.npy"),
        ("shards/**", "shards/deep/plan.parquet"),
        (str(Path("shards/*").absolute()), "shards/plan.parquet"),
    ):
        refused("random", pattern, "-b", 8, "-o", output, parts=[f"{output}: {REFUSED} {pattern}"])
    for pattern, output in (
        ("shards/*", "shards/plan.txt"),
        ("shards/*.npy", "plan.npy"),
        ("shards/*", "shards/deep/plan.npy"),
        ("shards/[0-9].npy", "shards/plan.npy"),
    ):
        done("random", pattern, "-b", 8, "-o", output)


def test_metadata_beside_what_a_link_leads_to(npy, done, refused):
    Path("real").mkdir()
    done("random", *npy, "-b", 8, "-o", "real/plan.npy")
    Path("link.npy").symlink_to("real/plan.npy")
    line = ["check", "link.npy", *npy, "--fail-under", "gap=-9", "--force"]
    for output in ("link.npy.json", "real/plan.npy.json", "real/plan.npy"):
        refused(*line, "--junit", output, parts=[f"{output}: {REFUSED} link.npy"])


def test_results_are_kept_from_what_the_settings_read(npy, done, refused):
    Path("kept").mkdir()
    done("random", *npy, "-b", 8, "-o", "kept/partition.npz")
    line = ["compare", *npy, "-b", 8, "--settings", "s.toml", "--folder", "kept"]
    Path("s.toml").write_text(
        "[partition]\nreference = ['x.npy', 'kept/partition.npz']\nrelative_margin = 0.1\n"
    )
    refused(*line, parts=[f"kept/partition.npz: {REFUSED} kept/partition.npz"])


@dataclass(frozen=True, kw_only=True)
class OfMine(RandomOptions):
    """A planner's options as anyone may add them."""

    hints: str | None = option(None, "Some file.", kind="path")


def test_the_options_of_a_new_planner(parquet):
    """Nothing but their kind needs to be said."""
    mine = Planner(random, OfMine, "Of mine.", "batchplan mine x.npy")
    group = typer.Typer(cls=Commands)
    for name in ("mine", "other"):  # of a single one the name is not typed
        group.command(name)(planner_command(name, mine))
    Path("hints.npy").write_text("hint")
    line = ["mine", parquet, "--hints", "hints.npy", "-b", "8", "-o", "hints.npy", "-f"]
    result = CliRunner().invoke(group, line)
    assert result.exit_code == 3
    assert f"hints.npy: {REFUSED} hints.npy" in result.stderr


def test_a_path_is_neither_empty_nor_standard_input(npy, refused):
    for given, part in (("", "got an empty path"), ("-", "standard input cannot be read twice")):
        refused("gcbs", *npy, "--reference", given, "--relative-margin", 0.1, parts=[part])
