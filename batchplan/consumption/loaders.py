"""`run_loader`: run a loader in several processes, without a model, and record its batches."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import socket
import sys
import time
from collections import deque
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
    """Record the batches of a loader in each of several processes, which form a gloo group.

    Before each epoch, ``set_epoch`` of the loader or its sampler is called, if it has this method.

    Args:
        target: ``module:function``. The function returns the loader of its process. Rank and world
            size are known to torch.distributed, and in the environment variables of torchrun.
        world_size: number of processes.
        epochs: passes over the loader.
        resume_at: after this number of steps of the last epoch, load the ``state_dict`` of the
            loader or its sampler into a new one, and go on with that.
        timeout: seconds after which the processes are killed, counted from the time when all run.

    Returns:
        The trace, and whether the processes were killed.

    Raises:
        InputError: there is no such function, or the function or its loader fails.
    """
    module, colon, function = target.partition(":")
    if not (module and colon and function):
        raise InputError(f"loader: got {target!r}, expected MODULE:FUNCTION, as train:make_loader")
    with TemporaryDirectory(prefix="batchplan-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {
            **os.environ, "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]),
        }  # fmt: skip
        arguments = environment, module, function, world_size, folder, epochs, resume_at
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
    """Start the process from which the ranks are forked, so that torch is imported once (2 s)."""
    multiprocessing.set_forkserver_preload([__name__])
    before = os.environ.get("PYTHONSAFEPATH", "")
    # Files of the working directory, such as random.py, would hide other modules.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        forkserver.ensure_running()
    finally:
        os.environ["PYTHONSAFEPATH"] = before


def _run(rank: int, environment: dict[str, str], *arguments: Any) -> None:
    """Run `_record`, and end this process when its parent ends."""
    waiting: Any = multiprocessing.parent_process()
    with ended_with(waiting.sentinel):
        torch.set_num_threads(1)
        os.environ.clear()
        os.environ |= {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        sys.path.insert(0, os.getcwd())
        _record(rank, *arguments)


def _record(
    rank: int,
    module: str,
    function: str,
    world_size: int,
    folder: str,
    epochs: int,
    resume_at: int | None,
) -> None:
    recorder = Recorder(folder)
    recorder.start()
    distributed.init_process_group(
        "gloo", f"file://{folder}/processes", rank=rank, world_size=world_size
    )
    make = getattr(importlib.import_module(module), function)
    loader = make()
    for epoch in range(epochs):
        _set_epoch(loader, epoch)
        steps = iter(recorder.wrap(loader, epoch=epoch))
        if resume_at and epoch == epochs - 1:
            deque(islice(steps, resume_at), 0)
            state = _stateful(loader).state_dict()
            loader = make()
            _stateful(loader).load_state_dict(state)
            _set_epoch(loader, epoch)
            recorder.start()
            steps = iter(recorder.wrap(loader, epoch=epoch, step=resume_at))
        deque(steps, 0)
    Path(folder, f"ended.{rank}").touch()
    while len(list(Path(folder).glob("ended.*"))) < world_size:
        time.sleep(_PAUSE)  # in training, too, a rank with more steps waits for the others


def _set_epoch(loader: Any, epoch: int) -> None:
    if (part := _part(loader, "set_epoch")) is not None:
        part.set_epoch(epoch)


def _stateful(loader: Any) -> Any:
    if (part := _part(loader, "load_state_dict")) is not None:
        return part
    raise InputError(
        "resume at: the loader and its batch sampler have no state_dict; return a loader that can "
        "go on, such as torchdata's StatefulDataLoader, or leave --resume-at out"
    )


def _part(loader: Any, method: str) -> Any:
    """Return the first of loader, batch sampler and sampler that has this method; else None."""
    parts = loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)
    return next((part for part in parts if hasattr(part, method)), None)
