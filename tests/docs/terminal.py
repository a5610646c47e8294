"""The picture of a terminal in the README, drawn from real commands: ``make docs`` runs this."""

from __future__ import annotations

import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from fcntl import ioctl
from itertools import pairwise
from pathlib import Path
from termios import TIOCSWINSZ

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from .blocks import ROOT

PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COMMANDS = (
    "plan sample_data/pairs.parquet",
    "evaluate plan.npy sample_data/pairs.parquet",
)
_WIDTH = 100
_LOOP, _TYPED, _LINE = 30.0, 1.5, 0.1  # seconds: all of it, after a command, for a line
_HEIGHT, _TOP = 24.4, 1.6  # of a line, and of the first, in units of the picture
# A picture that loads fonts from elsewhere would tell who looks at it. A curtain, wider than the
# text, goes down line by line; who wants no motion, and what shows none, has no curtain.
_CURTAIN = f"""
    <clipPath id="room"><rect x="-4" width="1228" height="{{terminal_height}}" /></clipPath>
    <g transform="translate({{terminal_x}}, {{terminal_y}})" clip-path="url(#room)">
    <rect class="curtain" x="-4" width="1228" height="{{terminal_height}}"
          fill="{SVG_EXPORT_THEME.background_color.hex}" />
    </g>
</svg>"""
_FORMAT = (
    re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    .replace("{styles}", "{styles}\nCURTAIN")
    .replace("\n</svg>", _CURTAIN)
)


def drawn(command: str) -> str:
    """What a command leaves on a terminal, with its colours; bars are gone by then."""
    ours, theirs = pty.openpty()
    ioctl(ours, TIOCSWINSZ, struct.pack("HHHH", 50, _WIDTH, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "batchplan", *command.split()],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    read = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        read += part
    os.close(ours)
    if process.wait():
        raise SystemExit(read.decode())
    return "\n".join(_screen(read.decode())).rstrip("\n")


def _screen(text: str) -> list[str]:
    """The lines that stay: bars go up and erase their own."""
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            at += 1
            lines += [""] * (at == len(lines))
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part == "\x1b[1A":
            at -= 1
        elif part != "\r" and (part[0] != "\x1b" or part[-1] == "m"):
            lines[at] += part
    return lines


def curtain(lines: list[str]) -> str:
    """The style of a curtain over these lines: each command shows at once, and after a while its
    output line by line; most of the loop shows all."""
    begins = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    frames, seconds = [], 0.0
    for begin, end in pairwise([*begins, len(lines)]):
        count = end - begin
        for wait, timing in ((_TYPED, "step-end"), (_LINE * count, f"steps({count})")):
            frames.append((seconds, begin + 1, timing))
            seconds += wait
    frames += [(seconds, len(lines) + 1, "step-end"), (_LOOP, len(lines) + 1, "step-end")]
    steps = "\n".join(
        f"  {100 * at / _LOOP:.2f}% {{ transform: translateY({_TOP + shown * _HEIGHT:.1f}px); "
        f"animation-timing-function: {timing} }}"
        for at, shown, timing in frames
    )
    return f""".curtain {{ display: none }}
@media (prefers-reduced-motion: no-preference) {{
  .curtain {{ display: inline; animation: curtain {_LOOP:g}s infinite }}
}}
@keyframes curtain {{
{steps}
}}"""


def main() -> None:
    """Draw the picture, in a folder with the sample data. Kernels should be compiled."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "sample_data", Path(folder, "sample_data"))
        os.chdir(folder)
        with open(os.devnull, "w") as nowhere:
            console = Console(
                record=True, width=_WIDTH, file=nowhere, force_terminal=True, highlight=False
            )
            for command in COMMANDS:
                console.print(Text(f"$ batchplan {command}", "bold green"))
                console.print(Text.from_ansi(drawn(command)))
            lines = console.export_text(clear=False).splitlines()
            svg = console.export_svg(title="batchplan", code_format=_FORMAT)
            PICTURE.write_text(svg.replace("CURTAIN", curtain(lines)))
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
