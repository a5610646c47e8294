"""Every command and every Python block of the pages runs, and says what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from batchplan.cli.app import app

from .blocks import PAGES, ROOT, blocks_of
from .shown import require_same
from .training import names

# Commands that a test cannot run: they make environments, fetch packages or take minutes. The
# targets of make must exist.
NOT_RUN = ("make ", "pip install ", "git clone ", "cd ")
# Commands that another test runs: tests/docs/test_examples.py.
ELSEWHERE = ("python docs/examples/", "bash docs/examples/")
# Pages of measurements: their commands take minutes, and their own text says on what machine.
MEASUREMENTS = ("performance.md", "training.md")

_RUNNABLE = {"python", "console", "sh"}
_SHELL = re.compile(r"[|<>;&$`*]")
_COLUMNS = "100"

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Shell:
    """Runs the commands of one page, one after the other, in a folder with the sample data."""

    def __init__(self) -> None:
        self.status = 0

    def run(self, command: str) -> str:
        """What the command printed on both streams."""
        if command == "echo $?":
            return f"{self.status}\n"
        words = shlex.split(command)
        if words[0] == "batchplan" and not _SHELL.search(command):  # saves an import of torch
            result = CliRunner(env={"COLUMNS": _COLUMNS}).invoke(
                app, words[1:], prog_name="batchplan"
            )
            self.status = result.exit_code
            if not isinstance(result.exception, SystemExit | None):
                raise AssertionError(command) from result.exception
            return result.output
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env={**os.environ, "PATH": path, "COLUMNS": _COLUMNS},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        )  # fmt: skip
        self.status = done.returncode
        return done.stdout


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    """What the pages show was printed there; a GPU may round the last bit of a row otherwise."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # for commands that the shell runs


@by_page
def test_blocks_run(page, tmp_path, monkeypatch):
    blocks = [
        block
        for block in blocks_of(page)
        if block.language in _RUNNABLE and block.like != "frameworks"
    ]
    if not blocks or page.name in MEASUREMENTS:
        pytest.skip("nothing to run")
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    namespace = names() if page.name == "README.md" and page.parent == ROOT else {}
    shell = Shell()
    for block in blocks:
        where = f"{page.name}, line {block.line}"
        if block.language == "python":
            exec(compile(block.text, where, "exec"), namespace)
            continue
        commands = block.commands()
        following = [command for command, _ in commands[1:]] + [""]
        for (command, shown), after in zip(commands, following, strict=True):
            if command.startswith((*NOT_RUN, *ELSEWHERE)):
                continue
            printed = shell.run(command)
            # A command that fails says so on the page, by showing its exit status.
            assert shell.status == 0 or after == "echo $?" or command == "echo $?", (
                f"{where}: {command}: exit status {shell.status}\n{printed}"
            )
            if shown:
                require_same(shown, printed, f"{where}: {command}", block.like)


def test_what_make_run_prints_is_what_its_commands_print(tmp_path, monkeypatch):
    """The README shows the output of ``make run``, which no test runs: run its recipe instead."""
    recipe = re.search(r"^run:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    commands = [line.strip() for line in recipe.splitlines()]
    ((shown, like),) = (
        (shown, block.like)
        for block in blocks_of(ROOT / "README.md")
        if block.language == "console"
        for command, shown in block.commands()
        if command == "make run"
    )
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    printed = ""
    for command in commands:  # make prints a command before it runs it
        printed += command.replace("$(BIN)", ".venv/bin") + "\n"
        printed += shell.run(command.removeprefix("$(BIN)/"))
        assert shell.status == 0
    require_same(shown, printed, "README.md: make run", like)


@by_page
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"`(?:\$ )?make ([a-z-]+)", page.read_text()))
    for block in blocks_of(page):
        if block.language in ("console", "sh"):
            used |= {
                command.split()[1] for command, _ in block.commands() if command.startswith("make ")
            }
    assert used <= targets


@by_page
def test_links_resolve(page):
    for target in re.findall(r"(?:\]\(|src=\")([^)\"\s]+)", prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert ROOT in file.parents, f"{page.name}: {target} leaves the repository"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", prose(file), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page.name}: {target}"


def prose(page):
    """The text of a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_site_has_every_page():
    """In its navigation, once. docs/site_hooks.py adds the pages that are not in docs/."""
    added = ["api.md", "changelog.md", "index.md", "sample_data.md"]
    listed = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted([*added, *(page.name for page in (ROOT / "docs").glob("*.md"))])


@by_page
def test_blocks_name_their_language(page):
    known = _RUNNABLE | {"text", "json", "make"}
    for block in blocks_of(page):
        assert block.language in known, f"{page.name}, line {block.line}: {block.language!r}"
