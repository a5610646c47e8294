"""Shell completion: the scripts that shells load, and the answers they get."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHELLS = ("bash", "zsh", "fish")
SCRIPT = Path(sys.executable).with_name("batchplan")


@pytest.fixture
def ask(programs):
    """What the program prints, given arguments and variables."""

    def ask(*arguments, **environment):
        done = subprocess.run(
            [programs / "batchplan", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        assert done.stderr == ""
        return done.stdout

    return ask


@pytest.fixture
def answers(ask):
    """What a shell is told to offer for the last word of a line."""

    def answers(shell, line):
        words = {
            "bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
            "zsh": {"_TYPER_COMPLETE_ARGS": line},
            "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }
        return ask(_BATCHPLAN_COMPLETE=f"complete_{shell}", **words[shell])

    return answers


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_this_program(shell, ask):
    script = ask("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_BATCHPLAN_COMPLETE" in script
    assert f"complete_{shell}" in script


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_choices_are_completed(shell, answers):
    assert "gcbs" in answers(shell, "batchplan gc")
    assert "random" not in answers(shell, "batchplan gc")
    assert "--quantile" in answers(shell, "batchplan gcbs --qua")
    assert "shuffled" in answers(shell, "batchplan gcbs --batch-order sh")


@pytest.mark.skipif(not (shutil.which("bash") and SCRIPT.exists()), reason="needs bash, installed")
def test_bash_completes_a_line():
    script = """
        eval "$(batchplan --show-completion bash)"
        COMP_WORDS=(batchplan evalu) COMP_CWORD=1
        _batchplan_completion batchplan
        echo "${COMPREPLY[@]}"
    """
    environment = {
        **os.environ,
        "PATH": f"{SCRIPT.parent}:{os.environ['PATH']}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("evaluate\n", "")
