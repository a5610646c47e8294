"""Plans that are loaded while others save at their path: the old one or the new one, in full."""

import itertools
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchplan.files.sidecar import sidecar_path
from batchplan.plans import Batching, Plan

SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")


def make(number, rows):
    """A plan with metadata that tell its number, and have a length of their own."""
    order = np.random.default_rng(number).permutation(rows)
    options = {"text": "x" * 100 * number}
    return Plan.cut(
        order, Batching(8), num_rows=rows,
        planner="p", seed=number, options=options,
    )  # fmt: skip


def found(plan, known):
    """The number of the plan among those that are known."""
    (number,) = (n for n, one in enumerate(known) if np.array_equal(one.rows, plan.rows))
    assert plan.metadata == known[number].metadata
    assert np.array_equal(plan.batch_offsets, known[number].batch_offsets)
    return number


class Saves:
    """A thread that saves plans in turn at a path, and goes on for a step when it is let: a step
    is what one call changes in the folder, and all until the next call."""

    def __init__(self, plans, path):
        self._plans, self._path = itertools.cycle(plans), path
        self._go, self._arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._ends, self._calls = False, 0  # of this save
        self._thread = threading.Thread(target=self._run)

    def step(self, count):
        for _ in range(count):
            self._go.release()
            self._arrived.acquire()

    def finish(self):
        """Save to the end, for formats of two files, which are renamed and whose hidden names are
        removed."""
        while self._calls > 1:
            self.step(1)

    def changing(self, call):
        def stepped(*arguments, **named):
            if threading.current_thread() is self._thread and not self._ends:
                self._calls += 1
                self._arrived.release()
                self._go.acquire()
            return call(*arguments, **named)

        return stepped

    def __enter__(self):
        self._thread.start()
        self._arrived.acquire()
        return self

    def __exit__(self, *_):
        self._ends = True
        self._go.release()
        self._thread.join()

    def _run(self):
        while not self._ends:
            self._calls = 0
            next(self._plans).save(self._path, force=True)


@contextmanager
def interleaved(plans, path, steps):
    """Before each look at the folder, a thread saves ``steps`` further, while there are some."""
    saves, left = Saves(plans, path), iter(steps)

    def looking(call):
        def looked(*arguments, **named):
            if threading.current_thread() is threading.main_thread():
                saves.step(next(left, 0))
            return call(*arguments, **named)

        return looked

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(os, name, saves.changing(getattr(os, name)))
        with saves:
            for name in ("open", "stat"):
                patch.setattr(os, name, looking(getattr(os, name)))
            patch.setattr(time, "sleep", lambda _: saves.finish())
            yield
            patch.undo()


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.integers(0, 9), max_size=20), st.booleans())
@example([0, 0, 9], True)  # a small file takes the place of a large one that is open
def test_any_order_of_steps(suffix, folder, steps, described):
    """Of a reader and a writer, also over a plan without metadata."""
    path = folder / f"plan{suffix}"
    known = [make(number, rows) for number, rows in enumerate((2000, 200, 20))]
    known[0].save(path, force=True)
    if not described:
        sidecar_path(path).unlink(missing_ok=True)
        known[0] = Plan.load(path, batch_size=8)
    with interleaved(known[1:], path, steps):
        found(Plan.load(path, batch_size=8), known)


WRITE = f"""
from batchplan.plans import Plan
plans = [Plan.load(f"known-{{number}}.npz") for number in (1, 0)]
print("go", flush=True)
while True:
    for plan in plans:
        for suffix in {SUFFIXES}:
            plan.save("plan" + suffix, force=True)
"""


def test_beside_a_process_that_saves(folder):
    """Again and again, in all formats; a load takes as long as some saves."""
    known = [make(number, rows) for number, rows in enumerate((20_000, 10_000))]
    for number, plan in enumerate(known):
        plan.save(f"known-{number}.npz")
    for suffix in SUFFIXES:
        known[0].save(f"plan{suffix}")
    with subprocess.Popen([sys.executable, "-c", WRITE], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout.readline() == b"go\n"
            for suffix, _ in itertools.product(SUFFIXES, range(16)):
                found(Plan.load(f"plan{suffix}"), known)
        finally:
            writer.kill()
