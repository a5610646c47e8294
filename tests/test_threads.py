"""The number of threads, which is the caller's to set."""

import os
import subprocess
import sys
import threading

import pytest

from batchplan.threads import dealt, in_order

SCRIPT = """
import numpy as np, torch
import batchplan

rows = np.random.default_rng(0).standard_normal((200, 8), np.float32)
data = batchplan.Embeddings.from_arrays(rows)
batchplan.evaluate(batchplan.plan(data, planner="gcbs", batch_size=8), data)
print(torch.get_num_threads())
"""


def test_planning_and_measuring_leave_torch_its_threads():
    """Also where numba, which may have the same OpenMP, uses another number of them."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], stdout=-1, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n")


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_order_up_to_the_first_error(threads, use_threads):
    use_threads(threads)

    def work(item):
        if item == 5:
            raise ValueError("five")
        return item

    found = []
    with pytest.raises(ValueError, match="five"):
        found.extend(in_order(work, range(9)))
    assert found == list(range(5))


def test_items_are_dealt_in_turn_and_come_back_in_order():
    seen, others_are_done = [], threading.Event()

    def work(worker, item):
        if item == 0:
            assert others_are_done.wait(60)
        seen.append(item)
        if item == 5:
            others_are_done.set()
        return worker, item

    results = list(dealt(work, range(20), 3))
    assert results == [(item % 3, item) for item in range(20)]
    assert seen.index(0) > seen.index(5)


def test_an_error_of_a_worker_is_raised_and_ends_the_rest():
    seen = []

    def work(_worker, item):
        seen.append(item)
        if item == 3:
            raise ValueError("simulated")

    with pytest.raises(ValueError, match="simulated"):
        list(dealt(work, range(1000), 2))
    assert max(seen) <= 3 + 2 * 2  # two items ahead for each worker
