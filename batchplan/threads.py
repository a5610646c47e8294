"""Blocks of rows in parallel, on as many threads as torch may use."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def single_threads() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch may use; torch itself has one in each of them, and in the caller's,
    so what it computes does not depend on their number.

    One block a thread beats all threads on one tile: nothing waits at a barrier, so a busy core
    delays its own block only.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    torch.set_num_threads(1)
    patient = True
    try:
        yield pool
    except KeyboardInterrupt:  # which should not wait for a block that takes long, or hangs
        patient = False
        raise
    finally:
        pool.shutdown(wait=patient, cancel_futures=True)
        torch.set_num_threads(threads)


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """``work`` of each item in `single_threads`, in order, a few items ahead of the caller."""
    ahead = 2 * torch.get_num_threads()
    running: deque[Future[Result]] = deque()
    with single_threads() as pool:
        for item in items:
            running.append(pool.submit(work, item))
            if len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def in_blocks(
    work: Callable[[int, int], object],
    count: int,
    step: int,
    advance: Callable[[int], None],
    device: torch.device | None = None,
) -> None:
    """``work(start, stop)`` for every ``step`` of ``count`` rows, as `in_order` runs it; on a
    device other than the CPU one after another.

    Args:
        advance: told of rows done, in order.
    """

    def block(start: int) -> int:
        stop = min(start + step, count)
        work(start, stop)
        return stop - start

    starts = range(0, count, step)
    threaded = device is None or device.type == "cpu"
    for done in in_order(block, starts) if threaded else map(block, starts):
        advance(done)


def dealt(
    work: Callable[[int, Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """``work(worker, item)`` of each item, in order; workers get items in turn, each has a thread.

    For devices: a thread waits for its own, and a worker is an item or two ahead of the caller.
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
