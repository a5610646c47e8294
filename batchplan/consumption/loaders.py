"""Runs a loader alone in several processes, and records its batches as a training would."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator
from itertools import islice
from math import inf
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed
from torch.multiprocessing.spawn import (
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from batchplan.consumption.traces import Trace
from batchplan.errors import InputError
from batchplan.files.signals import ended_with
from batchplan.training.recorder import Recorder

_PAUSE = 0.1  # seconds between two looks at the processes


def run_loader(
    target: str,
    world_size: int,
    *,
    epochs: int,
    resume_at: int | None = None,
    timeout: float = 60.0,
) -> tuple[Trace, bool]:
    """What a loader yields in each of several processes, which gloo joins.

    Before each epoch the ``set_epoch`` of the loader, or of its batch sampler, is called if there
    is one.

    Args:
        target: ``module:function``; the function makes the loader of its process, whose rank is in
            torch.distributed and in the variables that torchrun sets.
        world_size: number of processes.
        epochs: passes over the loader.
        resume_at: after so many steps of the last epoch, the ``state_dict`` of the loader, or of
            its batch sampler, is loaded into a new one, which goes on.
        timeout: seconds after which the processes are killed, counted from when all run.

    Returns:
        The trace, and whether they were killed.

    Raises:
        InputError: no such function, or it or its loader fails.
    """
    module, colon, function = target.partition(":")
    if not (module and colon and function):
        raise InputError(f"loader: got {target!r}, expected MODULE:FUNCTION, as train:make_loader")
    with TemporaryDirectory(prefix="batchplan-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = world_size, free.getsockname()[1], folder
        arguments = module, function, place, epochs, resume_at, dict(os.environ)
        _start_server()
        started = start_processes(  # type: ignore[no-untyped-call]
            _run, arguments, world_size, join=False, start_method="forkserver"
        )
        deadline = inf
        try:
            while not started.join(_PAUSE) and time.monotonic() < deadline:
                if deadline == inf and len(list(Path(folder).glob("trace.*"))) == world_size:
                    deadline = time.monotonic() + timeout
        except (ProcessRaisedException, ProcessExitedException) as error:
            reason = str(error).strip().splitlines()[-1]
            raise InputError(f"{target}: fails in a process of its own with {reason}") from error
        finally:
            late = [process for process in started.processes if process.is_alive()]
            for process in late:
                process.kill()
                process.join()
        return Trace(folder), bool(late)


def _start_server() -> None:
    """Start the process that ranks will be copies of: torch would take two seconds of each."""
    multiprocessing.set_forkserver_preload([__name__])
    kept = os.environ.get("PYTHONSAFEPATH")
    # Files of the working directory, such as random.py, would hide other modules.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        forkserver.ensure_running()
    finally:
        if kept is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = kept


def _run(*arguments: Any) -> None:
    """As `_record`, until the process that waits for it ends."""
    waiting: Any = multiprocessing.parent_process()
    with ended_with(waiting.sentinel):
        _record(*arguments)


def _record(
    rank: int,
    module: str,
    function: str,
    place: tuple[int, int, str],
    epochs: int,
    resume_at: int | None,
    environment: dict[str, str],
) -> None:
    world_size, port, folder = place
    torch.set_num_threads(1)
    os.environ.clear()
    os.environ |= environment | {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    sys.path.insert(0, os.getcwd())
    recorder = Recorder(folder)
    recorder.start()
    distributed.init_process_group(
        "gloo", f"file://{folder}/processes", rank=rank, world_size=world_size
    )
    make = getattr(importlib.import_module(module), function)
    loader = make()
    for epoch in range(epochs):
        last = epoch == epochs - 1
        _set_epoch(loader, epoch)
        steps = iter(recorder.wrap(loader, epoch=epoch))
        if resume_at and last:
            _exhaust(islice(steps, resume_at))
            state = _stateful(loader).state_dict()
            loader = make()
            _stateful(loader).load_state_dict(state)
            _set_epoch(loader, epoch)
            recorder.start()
            steps = iter(recorder.wrap(loader, epoch=epoch, step=resume_at))
        _exhaust(steps)
    Path(folder, f"ended.{rank}").touch()
    while len(list(Path(folder).glob("ended.*"))) < world_size:
        time.sleep(_PAUSE)  # in a training it would stay, too: one with more steps waits for it


def _exhaust(steps: Iterator[Any]) -> None:
    for _ in steps:
        pass


def _set_epoch(loader: Any, epoch: int) -> None:
    for part in (loader, *(getattr(loader, name, None) for name in ("batch_sampler", "sampler"))):
        if part is not None and hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
            return


def _stateful(loader: Any) -> Any:
    for part in (loader, getattr(loader, "batch_sampler", None)):
        if hasattr(part, "load_state_dict"):
            return part
    raise InputError(
        "resume at: the loader and its batch sampler have no state_dict; return a loader that can "
        "go on, such as torchdata's StatefulDataLoader, or leave --resume-at out"
    )
