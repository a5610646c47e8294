"""Bars and colours belong on a terminal, and nowhere else."""

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import numpy as np
import pytest

BAR = "━"
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")
RANDOM = ["random", "x.npy", "--single", "-b", "8"]  # needs no torch: starts sooner


@pytest.fixture(autouse=True)
def embeddings(folder):
    np.save("x.npy", np.random.default_rng(0).standard_normal((400, 8), np.float32))


def environment(**changed):
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")}
    return {**kept, "TERM": "xterm-256color", **changed}


def on_terminal(*arguments, stdout=None, width=100, **changed):
    """What a process draws on a terminal of this many columns; stdout may go elsewhere."""
    ours, theirs = pty.openpty()
    ioctl(ours, TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "batchplan", *arguments],
        stdin=theirs,
        stdout=stdout or theirs,
        stderr=theirs,
        env=environment(**changed),
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # what Linux says once the other end is closed
            break
        if not part:
            break
        drawn += part
    os.close(ours)
    assert process.wait() == 0, drawn
    return drawn.decode()


def test_a_terminal_gets_bars_and_colours():
    drawn = on_terminal("gcbs", "x.npy", "--single", "-b", "8")
    for stage in ("read", "prepare", "graph"):
        assert re.search(rf"{stage} \S*{BAR}", drawn), stage
    assert "/400" in drawn
    assert COLOUR.search(drawn)
    summary = drawn.rpartition("\x1b[?25h")[2]  # the cursor comes back when the bars are gone
    assert BAR not in summary
    assert "peak memory" in summary


def test_facts_fit_a_narrow_terminal():
    """Values continue below themselves, so that names stay a column of their own."""
    drawn = on_terminal(*RANDOM, width=40, NO_COLOR="1")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.rpartition("\x1b[?25h")[2])
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    assert len(lines) >= 6
    assert max(map(len, lines)) <= 40
    assert {re.match(r"\S+(?: \S+)*  +|  +", line).end() for line in lines} == {13}
    assert any(line.startswith("   ") for line in lines)


def test_no_color_is_honoured():
    drawn = on_terminal(*RANDOM, NO_COLOR="1")
    assert "/400" in drawn
    assert not COLOUR.search(drawn)
    table = on_terminal("inspect", "plan.npy", NO_COLOR="1")
    assert "fingerprint" in table
    assert not COLOUR.search(table)


def test_a_dumb_terminal_gets_no_escapes():
    drawn = on_terminal(*RANDOM, TERM="dumb")
    assert "peak memory" in drawn
    assert "\x1b" not in drawn


def test_quiet_draws_nothing():
    assert on_terminal(*RANDOM, "-q") == ""


def test_data_stays_clean_while_bars_are_drawn():
    with open("out.txt", "wb") as out:
        drawn = on_terminal(*RANDOM, "-o", "-", stdout=out)
    assert "/400" in drawn
    assert sorted(map(int, Path("out.txt").read_text().split())) == list(range(400))


@pytest.mark.parametrize(
    "arguments",
    [
        [*RANDOM, "-v"],
        ["inspect", "p.txt", "-b", "8"],
        ["random", "none.npy"],
        ["--help"],
        ["gcbs", "--nothing"],
    ],
    ids=" ".join,
)
def test_no_escapes_where_there_is_no_terminal(arguments):
    Path("p.txt").write_text("\n".join(map(str, range(400))))
    done = subprocess.run(
        [sys.executable, "-m", "batchplan", *arguments], capture_output=True, env=environment()
    )
    output = done.stdout + done.stderr
    assert output
    assert b"\x1b" not in output
    assert b"\r" not in output
    assert BAR.encode() not in done.stderr
