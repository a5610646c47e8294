"""No command connects to anything, or asks for the address of a host."""

from __future__ import annotations

import socket
import sys

import pytest
from typer.testing import CliRunner

from batchplan.cli.app import app

_EVENTS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
_SEEN: list[tuple[str, object]] | None = None


def _watch(event, arguments):
    if _SEEN is not None and event in _EVENTS:
        to = arguments[1] if event == "socket.connect" else arguments[0]
        if not (event == "socket.connect" and arguments[0].family == socket.AF_UNIX):
            _SEEN.append((event, to))


sys.addaudithook(_watch)  # it cannot be removed


@pytest.fixture
def connections(monkeypatch):
    seen: list[tuple[str, object]] = []
    monkeypatch.setattr(sys.modules[__name__], "_SEEN", seen)
    return seen


def test_a_connection_is_seen(connections):
    with socket.socket() as closed, pytest.raises(OSError, match=r"refused|unreachable"):
        closed.connect(("127.0.0.1", 1))
    assert connections == [("socket.connect", ("127.0.0.1", 1))]


def test_commands_connect_to_nothing(connections, some, tmp_path):
    data, plan = str(some), str(tmp_path / "plan.npy")
    for command in (
        ["plan", data, "-o", plan],
        ["evaluate", plan, data],
        ["check", plan, data, "--fail-under", "gap_reduction=0"],
        ["inspect", data],
        ["report", plan, data, "-o", str(tmp_path / "report.html")],
        ["refine", plan, data, "-o", str(tmp_path / "refined.npy")],
        ["materialize", plan, data, "-o", str(tmp_path / "data.parquet")],
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    assert connections == []
