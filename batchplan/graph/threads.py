"""Blocks of rows in parallel, on as many threads as torch may use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """``work`` of each item, in order, a few items ahead of the caller.

    One block a thread beats all threads on one tile: nothing waits at a barrier, so a busy core
    delays its own block only. Meanwhile torch has one thread in each of them, and in the caller's.
    """
    threads = torch.get_num_threads()
    running: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    torch.set_num_threads(1)
    try:
        for item in items:
            running.append(pool.submit(work, item))
            if len(running) > 2 * threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
