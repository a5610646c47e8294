"""Plans mega-batches in this process, several at the same time: while METIS cuts the graphs of some
in processes of their own, this process works on the next."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import torch

from batchplan.data import Embeddings
from batchplan.graph.cutters import Cutters
from batchplan.planners.partition.mega_batch import Cutting, Planned, steps_of
from batchplan.planners.partition.problem import Problem
from batchplan.runtime import Observer, Runtime
from batchplan.typing import Int64Array

_MOST = 8  # mega-batches in memory
_ACTIVE = 3  # the mega-batch at work takes the memory of this many that wait

Steps = Generator[Cutting, Int64Array, Planned]


def plan_all(
    problem: Problem, numbers: Sequence[int], runtime: Runtime
) -> Generator[tuple[int, Planned]]:
    """Plan some of the mega-batches of a problem; raises what `plan_mega_batch` does.

    Yields:
        The number of each and its batches, in the order in which they are finished.
    """
    left, waiting = iter(numbers), dict[Future[Int64Array], tuple[int, Steps]]()
    at_once = _at_once(problem, runtime)
    with (
        _stages_united(runtime, len(numbers)) as runtime,
        ThreadPoolExecutor(at_once) as pool,
        Cutters() as cutters,
    ):
        while True:
            labels, ready = None, any(future.done() for future in waiting)
            room = len(waiting) < at_once and not ready
            if room and (number := next(left, None)) is not None:
                mega_batch = problem.mega_batches[number]
                vectors, reference = problem.vectors(number)
                steps = steps_of(vectors, mega_batch, problem.options, runtime, reference)
            elif waiting:
                with runtime.stage("partition"):
                    wait(waiting, return_when=FIRST_COMPLETED)
                done = next(future for future in waiting if future.done())
                (number, steps), labels = waiting.pop(done), done.result()
            else:
                return
            try:
                cutting = next(steps) if labels is None else steps.send(labels)
            except StopIteration as end:
                yield number, end.value
            else:
                waiting[pool.submit(cutters.cut, *cutting)] = number, steps


def _at_once(problem: Problem, runtime: Runtime) -> int:
    """How many mega-batches to have in memory: one for each thread, if they fit."""
    embeddings, neighbors = problem.embeddings, problem.options.neighbors
    if len(problem.mega_batches) == 1 or problem.options.from_plan is not None:
        return 1
    if isinstance(embeddings, Embeddings):
        both = [part for part in (embeddings, problem.reference) if part is not None]
        row = sum(len(part.matrices) * part.dim * (4 + part.x.dtype.itemsize) for part in both)
        row += 16 * (1 + embeddings.paired) * neighbors
    else:
        row = embeddings.row_bytes + 16 * neighbors
    largest = max(len(mega_batch.rows) for mega_batch in problem.mega_batches)
    fit = runtime.memory_left() // (largest * row) - _ACTIVE
    return max(1, min(torch.get_num_threads(), _MOST, fit))


@contextmanager
def _stages_united(runtime: Runtime, count: int) -> Iterator[Runtime]:
    """A runtime whose observer sees each stage once, for all of ``count`` mega-batches."""
    if runtime.observer is None or count == 1:
        yield runtime
        return
    united = _United(runtime.observer, count)
    try:
        yield replace(runtime, observer=united)
    finally:
        for stage, seconds in united.seconds.items():
            runtime.observer.finish(stage, seconds)


class _United:
    """An observer that starts each stage once, and adds up the seconds of each."""

    def __init__(self, observer: Observer, count: int) -> None:
        self._observer, self._count = observer, count
        self.seconds: dict[str, float] = {}
        self.note, self.advance = observer.note, observer.advance

    def start(self, stage: str, total: int | None) -> None:
        if stage not in self.seconds:
            self.seconds[stage] = 0.0
            self._observer.start(stage, total and total * self._count)

    def finish(self, stage: str, seconds: float) -> None:
        self.seconds[stage] += seconds
