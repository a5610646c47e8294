"""Programs that run in copies of a process that has loaded the libraries.

To load torch takes two seconds of a processor, for each of the commands of a shell script. Here the
scripts find a `batchplan` and a `python` that have a copy of a loaded process do their work, with
their arguments, environment, folder and streams. Signals reach a copy only by its own number, and
nothing of the start is tested. All workers of pytest-xdist share the process.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PATIENCE = 120  # seconds until the process has loaded
_SERVE = "import sys; from tests.loaded import serve; serve(sys.argv[1])()"
_CLIENT = """
import json, os, socket, sys
address, *words = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as server:
    server.connect(address)
    socket.send_fds(server, [b" "], [0, 1, 2])
    server.sendall(json.dumps([words, os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    status = int(server.makefile().read())
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""
_LOADED = ("torch", "torch._dynamo", "numba", "pyarrow.parquet", "scipy.sparse", "batchplan.warmup",
           "batchplan.cli.app", "batchplan.gates", "batchplan.training")  # fmt: skip


class Programs:
    """Programs that one process copies itself for, begun before they are needed.

    Attributes:
        folder: with `batchplan` and `python`, once `ready` has returned it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        address, client = folder / "address", folder / "client.py"
        client.write_text(_CLIENT)
        for name in ("batchplan", "python"):
            words = [sys.executable, "-IS", client, address, name]
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            program.chmod(0o755)
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def end(self) -> None:
        self._server.communicate(timeout=60)


def ready(folder: Path) -> Path:
    """The folder, to be the first of PATH, as soon as its programs run."""
    deadline = time.monotonic() + _PATIENCE
    while not (folder / "address").exists():
        assert time.monotonic() < deadline, f"no process serves {folder}"
        time.sleep(0.01)
    return folder


def serve(address: str) -> Callable[[], object]:
    """Serve until standard input ends, also because whoever started this was killed; what it
    returns, in a copy, is the program that a client asks for."""
    for module in _LOADED:
        __import__(module)
    from numba.core.registry import cpu_target

    for kept in (cpu_target.typing_context, cpu_target.target_context):
        kept.refresh()  # loads what the first kernel would
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen()
        os.rename(f"{address}.new", address)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that keep clients
        while True:
            if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
                os._exit(0)
            client, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                break
            client.close()
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    words, folder, environment = json.loads(client.makefile().readline())
    if (copy := os.fork()) != 0:
        status = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        client.sendall(b"%d" % status)
        os._exit(0)
    client.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return _program(*words)


def forget() -> None:
    """Let a script in a copy import the package again, from the script's own folder."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "batchplan"]:
        del sys.modules[name]


def _program(name: str, *arguments: str) -> Callable[[], object]:
    if name == "batchplan" or arguments[:2] == ("-m", "batchplan"):
        from batchplan.__main__ import main

        sys.argv[:] = ["batchplan", *arguments[2 * (name == "python") :]]
        return main
    if arguments[0] == "-c":
        sys.argv[:] = "-c", *arguments[2:]
        return lambda: exec(arguments[1], {"__name__": "__main__"})
    sys.argv[:] = arguments
    sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
    return lambda: runpy.run_path(arguments[0], run_name="__main__")
