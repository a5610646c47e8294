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


def test_the_picture_moves_and_ends_in_the_whole():
    """Unless who looks wants no motion, lines appear, and the whole stays for most of the time."""
    text = PICTURE.read_text()
    assert re.search(
        r"\.curtain \{ display: none \}\n@media \(prefers-reduced-motion: no-pref", text
    )
    frames = re.findall(r"([\d.]+)% \{ transform: translateY\(([\d.]+)px\)", text)
    at, height = ([float(frame[side]) for frame in frames] for side in (0, 1))
    assert (at[0], at[-1], sorted(at)) == (0, 100, at)
    assert at[-2] < 50
    assert sorted(height) == height
    shown = float(re.search(r'clip-terminal">\s*<rect x="0" y="0" .* height="([\d.]+)"', text)[1])
    assert height[0] < 30  # the first command
    assert height[-2] == height[-1] >= shown


def test_the_picture_loads_nothing():
    text = PICTURE.read_text()
    assert "@import" not in text
    assert "url(http" not in text
    assert 'url("http' not in text
    assert "src:" not in text
