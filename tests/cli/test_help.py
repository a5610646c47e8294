"""The help of every command: examples that run, and options that are explained."""

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from torch.utils.data import DataLoader

from batchplan.cli.app import app
from batchplan.planners import PLANNERS
from batchplan.training import PlanBatchSampler, Recorder

GROUP = typer.main.get_command(app)
COMMANDS = GROUP.commands
CONTEXT = typer.Context(GROUP, info_name="batchplan")
# The same name, another meaning: the plan's batches, those of a file that does not know its own.
# Printed as JSON is the summary of a plan, the table of a measurement.
DIFFERENT = {
    "batch_size": {"plan", *PLANNERS, "compare"},
    "json": {"plan", *PLANNERS, "refine", "materialize", "embed"},
    # Lists of candidates may be in their place.
    "embeddings": {"partition", "random", "shuffled", "refine", "evaluate"},
    "known": {"verify-consumption"},  # where the list of the plans is now
}
# What a model embeds at a time and where, and shards that are not cut at batches.
OF_EMBED = ("batch_size", "device", "shard_rows", "model")


def examples(name):
    """The command lines under "Example:" in the docstring that typer shows."""
    command = COMMANDS[name] if name else GROUP
    text = inspect.cleandoc(command.help).partition("Example:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in text.splitlines()]


# The example of embed needs a model: tests/frameworks runs it. warmup has tests of its own.
@pytest.mark.parametrize(
    "name", ["", *(name for name in COMMANDS if name not in ("embed", "warmup"))]
)
def test_examples_run_as_they_stand(name, run, done, pairs, parquet, monkeypatch):
    monkeypatch.setattr("batchplan.comparison.settings.USUAL", ("shuffled", "gcbs"))
    lines = examples(name)
    assert lines
    Path("pairs.parquet").rename("embeddings.parquet")
    if name in ("evaluate", "check", "refine", "report", "materialize", "verify-consumption"):
        done("random", "embeddings.parquet", "-b", 8)
    if name == "materialize":
        Path("embeddings.parquet").rename("data.parquet")
    if name == "verify-consumption":
        sampler = PlanBatchSampler("plan.npy")
        list(Recorder("trace").wrap(DataLoader(range(48), batch_sampler=sampler)))
    if name == "concat":
        for part in ("part0.npy", "part1.npy"):
            done("random", "embeddings.parquet", "-b", 8, "-o", part)
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "batchplan"
        shown = run(*([name] * bool(name)), "--help").stdout
        assert line in shown  # not folded, so that it can be copied
        sized = arguments[0] in ("plan", *PLANNERS, "compare")
        done(*arguments, *(["-b", "8"] * sized))  # there are fewer rows than the default


def test_every_planner_is_a_command():
    measuring = ["evaluate", "check", "compare", "inspect", "report"]
    others = ["concat", "materialize", "embed", "verify-consumption", "demo", "warmup"]
    assert list(COMMANDS) == ["plan", *PLANNERS, "refine", *measuring, *others]


def test_help_without_arguments_is_whole(run, done):
    shown = run()
    assert (shown.exit_code, shown.output.strip()) == (2, done("--help").stdout.strip())
    assert "Start with plan, or with demo" in shown.output


@pytest.mark.parametrize("line", ["-h", "help", "plan -h", "help plan"])
def test_other_ways_to_ask_for_help(line, run, done):
    words = line.split()
    named = [word for word in words if word == "plan"]
    assert done(*words).stdout == done(*named, "--help").stdout
    assert run("help", "plam").exit_code == 2


def test_help_alone_can_be_piped():
    done = subprocess.run([sys.executable, "-m", "batchplan"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout.startswith("Usage: batchplan")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("evaluate", "--all"),
        ("check", "--fail-under"),
        ("compare", "--settings"),
        ("report", "--png"),
    ],
)
def test_measuring_commands_show_their_own_options_first(name, own, done):
    shown = done(name, "--help").stdout
    places = [shown.index(f"\n{title}:\n") for title in ("Options", "Measures", "Guard", "Sources")]
    assert places == sorted(places)
    assert places[0] < shown.index(f"\n  {own} ") < places[1]
    assert shown.count("\n  --relative-margin") == 1
    assert places[2] < shown.index("\n  --known ") < places[3]  # a rule of the guard


def test_plan_names_the_planner_that_takes_an_option(npy, run):
    for option in ("--relative-margin", "--mega-batches"):
        assert "batchplan partition takes it" in run("plan", *npy, option, "0.5").stderr
    assert "partition" not in run("plan", *npy, "--nothing", "0.5").stderr


def test_the_list_of_commands_says_what_each_does(done):
    shown = done("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*[^.]\.$", shown, re.MULTILINE), name
    statuses = ("0 done", "1 a check", "2 usage", "3 bad input", "4 not", "5 output", "130 int")
    for status in statuses:
        assert status in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help(name, done):
    shown = "".join(done(name, "--help").stdout.split())  # lines may break anywhere
    assert "\\b" not in shown
    for option in COMMANDS[name].params:
        assert option.help, option.name
        assert option.help[-1] in ".]", option.name
        assert option.opts[-1] in shown or option.param_type_name == "argument"
        assert "".join(option.help.split()) in shown, option.name


def test_the_same_option_means_the_same_everywhere():
    seen = {}
    for name, command in COMMANDS.items():
        for option in command.params:
            if name == "embed" and option.name in OF_EMBED:
                continue
            key = (option.name, name in DIFFERENT.get(option.name, ()))
            facts = (option.opts, option.default, option.help, option.required)
            columns = ("group_column", "label_table", "source_column", "id_column")
            if key[0] in (
                "quantile",
                "similarity",
                "absolute_margin",
                "max_score",
                "guard",
                *columns,
            ):
                facts = (option.opts, option.default)  # said in the words of each command
            own = (
                "neighbors",
                "output",
                "refine",
                "relative_margin",
                "guard",
                "guard_penalty",
                "batch_order",
                "per_row",
            )
            if key[0] in own:
                facts = option.opts  # and each planner has a default of its own
            assert seen.setdefault(key, facts) == facts, (name, option.name)


def test_panels_hold_every_option_once(done):
    shown = done("partition", "--help").stdout
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE)
    assert sorted(flags) == sorted(
        next(flag for flag in option.opts if flag.startswith("--"))
        for option in COMMANDS["partition"].get_params(CONTEXT)
        if option.param_type_name == "option"
    )
    for name in ("plan", *PLANNERS, "refine"):  # all are in panels of a name
        assert "\nOptions:" not in done(name, "--help").stdout


def test_short_flags_are_the_same_everywhere():
    flags = {}
    for command in COMMANDS.values():
        for option in command.params:
            for flag in option.opts:
                if re.fullmatch(r"-\w", flag):
                    assert flags.setdefault(flag, option.name) == option.name
    assert flags == {
        "-o": "output",
        "-f": "force",
        "-b": "batch_size",
        "-q": "quiet",
        "-v": "verbose",
    }
