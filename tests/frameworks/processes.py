"""Programs in several processes that train together, with gloo on the CPU."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import traceback
from multiprocessing.connection import wait

_PATIENCE = 180  # seconds; the programs take a few
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "sentence_transformers",
        "datasets",
        "lightning.pytorch",
        "batchplan.planners.partition",
        "batchplan.quality.measure",
    ]
)


class FailedError(Exception):
    """A process failed; the message is its traceback."""


def run(program, devices, *arguments, **options):
    """What ``program(*arguments, **options)`` returns in each of so many processes, by rank.

    Raises:
        FailedError: one of them failed; the others are ended.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ends, processes = [], []
    for rank in range(devices):
        end, other = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(
            target=_main, args=(other, rank, devices, port, program, arguments, options)
        )
        process.start()
        other.close()
        ends.append(end)
        processes.append(process)
    try:
        return _results(ends)
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def _results(ends):
    results, deadline = {}, time.monotonic() + _PATIENCE
    while len(results) < len(ends):
        ready = wait(
            [end for rank, end in enumerate(ends) if rank not in results],
            deadline - time.monotonic(),
        )
        if not ready:
            raise FailedError(f"nothing from {len(ends) - len(results)} processes: a deadlock?")
        for end in ready:
            rank = ends.index(end)
            try:
                failed, result = end.recv()
            except EOFError:
                raise FailedError(f"process {rank} ended without a word") from None
            if failed:
                raise FailedError(result)
            results[rank] = result
    return [results[rank] for rank in range(len(ends))]


def _main(end, rank, devices, port, program, arguments, options):
    import numba
    import torch

    multiprocessing.set_start_method("fork", force=True)  # as usual, for the workers of loaders
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    if devices > 1:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(devices),
            "LOCAL_WORLD_SIZE": str(devices),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
    try:
        result = False, program(*arguments, **options)
    except BaseException:
        result = True, traceback.format_exc()
    end.send(result)
    end.close()
    os._exit(0)  # those that wait for a failed one in a collective would not end
