"""The picture of a terminal in the README shows what its commands print."""

import re
import shutil
from xml.etree import ElementTree

from typer.testing import CliRunner

from batchplan.cli.app import app

from .blocks import ROOT
from .terminal import COMMANDS, PICTURE

_SVG = "{http://www.w3.org/2000/svg}"


def words(text):
    """What does not depend on the machine, nor on where lines are folded."""
    text = re.sub(r"of which [a-z-]+", "of which", text)  # the slowest stage
    lines = [line for line in text.splitlines() if not line.startswith("compiling kernels")]
    return re.sub(r"[-+]?[\d.,]+([MG]B)?", "#", "".join("".join(lines).split()))


def test_the_picture_is_what_the_commands_print(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    printed = ""
    for command in COMMANDS:
        done = CliRunner().invoke(app, command.split())
        assert done.exit_code == 0, done.output
        printed += f"$ batchplan {command}\n{done.output}"
    lines = {}
    for text in ElementTree.parse(PICTURE).iter(f"{_SVG}text"):
        if "line-" in text.get("clip-path", ""):
            place = int(text.get("clip-path").rpartition("-")[2].rstrip(")"))
            lines[place] = lines.get(place, "") + text.text.replace("\xa0", " ")
    shown = "\n".join(lines[place] for place in sorted(lines))
    assert words(shown) == words(printed), "run `make docs`"


def test_the_picture_loads_nothing():
    text = PICTURE.read_text()
    assert "@import" not in text
    assert "url(http" not in text
    assert 'url("http' not in text
    assert "src:" not in text
