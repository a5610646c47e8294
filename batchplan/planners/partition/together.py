"""Plans mega-batches in this process, one after the other."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from batchplan.data import Embeddings
from batchplan.planners.partition.mega_batch import Planned, Prepared, prepare
from batchplan.planners.partition.problem import Problem
from batchplan.runtime import Observer, Runtime
from batchplan.typing import Int64Array

_BOTH = 5  # one that is refined and one that is cut take the memory of this many that wait


def plan_all(
    problem: Problem, numbers: Sequence[int], runtime: Runtime
) -> Generator[tuple[int, Planned]]:
    """Plan some of the mega-batches of a problem; raises what `prepare` does.

    If two of them fit into memory, one is cut into parts, on a thread of its own, while the one
    before is refined.

    Yields:
        The number of each and its batches, in the order of ``numbers``.
    """
    waiting = list[tuple[int, Prepared, Callable[[], Int64Array] | None]]()
    at_once = 2 if len(numbers) > 1 and _two_fit(problem, runtime) else 1

    def begin(number: int) -> None:
        mega_batch = problem.mega_batches[number]
        vectors, reference = problem.vectors(mega_batch)
        prepared = prepare(vectors, mega_batch, problem.options, runtime, reference)
        # One that is cut in this thread can be interrupted.
        cut = pool.submit(prepared.first_batches, runtime).result if at_once == 2 else None
        waiting.append((number, prepared, cut))

    def first() -> tuple[int, Planned]:
        number, prepared, cut = waiting.pop(0)
        return number, prepared.planned(runtime, cut)

    with _stages_united(runtime, len(numbers)) as runtime, ThreadPoolExecutor(1) as pool:
        for number in numbers:
            begin(number)
            if len(waiting) == at_once:
                yield first()
        while waiting:
            yield first()


def _two_fit(problem: Problem, runtime: Runtime) -> bool:
    """Whether two mega-batches fit into memory."""
    embeddings, neighbors = problem.embeddings, problem.options.neighbors
    if isinstance(embeddings, Embeddings):
        both = [part for part in (embeddings, problem.reference) if part is not None]
        row = sum(len(part.matrices) * part.dim * (4 + part.x.dtype.itemsize) for part in both)
        row += 16 * (1 + embeddings.paired) * neighbors
    else:
        row = embeddings.row_bytes + 16 * neighbors
    largest = max(len(mega_batch.rows) for mega_batch in problem.mega_batches)
    return runtime.memory_left() >= _BOTH * largest * row


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
