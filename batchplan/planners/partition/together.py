"""Mega-batches planned by this process, several at a time: while METIS cuts the graphs of some in
processes of their own, this one works at the next."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import torch

from batchplan.data import Data, Embeddings
from batchplan.graph.cutters import Cutters
from batchplan.planners.partition.mega_batch import Cutting, Planned, steps_of
from batchplan.planners.partition.options import PartitionOptions
from batchplan.planners.partition.problem import Problem
from batchplan.runtime import Observer, Runtime
from batchplan.typing import Int64Array

_MOST = 8  # mega-batches at a time
_HELD = 3  # times what one holds while it waits, for what it takes while it is worked at

Steps = Generator[Cutting, Int64Array, Planned]


def plan_all(
    problem: Problem,
    numbers: Sequence[int],
    embeddings: Data,
    options: PartitionOptions,
    runtime: Runtime,
) -> Generator[tuple[int, Planned]]:
    """Plan some of the mega-batches of a problem; raises what `plan_mega_batch` does.

    Yields:
        The number of each and its batches, in the order in which they get done.
    """
    with _stages_united(runtime, len(numbers)) as runtime:
        begun = (
            (number, _begun(problem, number, embeddings, options, runtime)) for number in numbers
        )
        at_once = _at_once(problem, embeddings, options, runtime)
        waiting: dict[Future[Int64Array], tuple[int, Steps]] = {}
        with ThreadPoolExecutor(at_once) as pool, Cutters() as cutters:
            while True:
                labels, ready = None, any(future.done() for future in waiting)
                room = len(waiting) < at_once and not ready
                if room and (following := next(begun, None)):
                    number, steps = following
                elif waiting:
                    with runtime.stage("partition"):
                        wait(waiting, return_when=FIRST_COMPLETED)
                    done = next(future for future in waiting if future.done())
                    (number, steps), labels = waiting.pop(done), done.result()
                else:
                    return
                try:
                    asked = next(steps) if labels is None else steps.send(labels)
                except StopIteration as end:
                    yield number, end.value
                else:
                    cutting = pool.submit(cutters.cut, asked.graph, asked.parts, asked.seed)
                    waiting[cutting] = number, steps


def _begun(
    problem: Problem,
    number: int,
    embeddings: Data,
    options: PartitionOptions,
    runtime: Runtime,
) -> Steps:
    vectors, reference = problem.vectors(number, embeddings)
    return steps_of(vectors, problem.mega_batch(number), options, runtime, reference)


def _at_once(
    problem: Problem, embeddings: Data, options: PartitionOptions, runtime: Runtime
) -> int:
    """How many mega-batches to have in memory: one for each thread, if they fit."""
    if len(problem.dealt) == 1 or problem.place is not None:
        return 1
    largest = max(len(dealt.rows) for dealt in problem.dealt)
    if isinstance(embeddings, Embeddings):
        both = (embeddings, *([problem.reference] if problem.reference else []))
        vectors = sum(len(part.matrices) * part.dim * (4 + part.x.dtype.itemsize) for part in both)
        held = largest * (vectors + 16 * (1 + embeddings.paired) * options.neighbors)
    else:
        held = largest * (embeddings.row_bytes + 16 * options.neighbors)
    fit = runtime.memory_left() // held - _HELD
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
        united.finish_all()


class _United:
    """An observer of many mega-batches, whose stages begin once and end together."""

    def __init__(self, observer: Observer, count: int) -> None:
        self._observer, self._count = observer, count
        self._seconds: dict[str, float] = {}
        self.note, self.advance = observer.note, observer.advance

    def start(self, stage: str, total: int | None) -> None:
        if stage not in self._seconds:
            self._seconds[stage] = 0.0
            self._observer.start(stage, total and total * self._count)

    def finish(self, stage: str, seconds: float) -> None:
        self._seconds[stage] += seconds

    def finish_all(self) -> None:
        for stage, seconds in self._seconds.items():
            self._observer.finish(stage, seconds)
