"""Parallel work on blocks of rows, with as many threads as torch may use."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TypeVar

import torch

from batchplan.runtime import silent

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def single_threads() -> Iterator[Executor]:
    """Yield a pool of as many threads as torch may use. Meanwhile torch uses one thread in each of
    them and in the caller's, so that its results do not depend on their number.

    One block per thread is faster than all threads on one tile: there is no barrier, so a busy core
    delays only its own block.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    torch.set_num_threads(1)
    patient = True
    try:
        yield pool
    except KeyboardInterrupt:  # without waiting for a slow block
        patient = False
        raise
    finally:
        pool.shutdown(wait=patient, cancel_futures=True)
        torch.set_num_threads(threads)


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """Yield the results of ``work`` on each item, in order, computed in `single_threads` a few
    items ahead. A single item is worked on in the caller's thread."""
    ahead = 2 * torch.get_num_threads()
    running: deque[Future[Result]] = deque()
    with single_threads() as pool:
        items = iter(items)
        first = list(islice(items, 2))
        if len(first) == 1:  # to start a thread takes longer than a small block
            yield work(first[0])
            return
        for item in chain(first, items):
            running.append(pool.submit(work, item))
            if len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def in_blocks(
    work: Callable[[int, int], object],
    count: int,
    step: int,
    advance: Callable[[int], None] = silent,
    device: torch.device | None = None,
) -> None:
    """Run ``work(start, stop)`` on each block of ``step`` of ``count`` rows: with `in_order` on the
    CPU, one by one on another device.

    Args:
        advance: called with the number of rows done, in order.
    """

    def block(start: int) -> int:
        stop = min(start + step, count)
        work(start, stop)
        return stop - start

    starts = range(0, count, step)
    threaded = device is None or device.type == "cpu"
    for done in in_order(block, starts) if threaded else map(block, starts):
        advance(done)


def block_height(count: int, most: int) -> int:
    """Return the number of rows of a block: at most ``most``, and a multiple of 64.

    All threads get equally many blocks, at least four unless there are few rows.
    """
    threads = torch.get_num_threads()
    blocks = threads * max(4, -(-count // (threads * most)))
    height = max(64, -(-count // blocks))
    return min(most, height + -height % 64)


def dealt(
    work: Callable[[int, Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """Yield the results of ``work(worker, item)`` on each item, in order. Workers get items in
    turn, and each has a thread.

    For devices: each thread waits for its own device, and is an item or two ahead of the caller.
    """
    running: deque[Future[Result]] = deque()
    pools = [ThreadPoolExecutor(1) for _ in range(workers)]
    try:
        for index, item in enumerate(items):
            running.append(pools[index % workers].submit(work, index % workers, item))
            if len(running) > 2 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)
