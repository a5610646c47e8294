"""What was planned can be evaluated in the same memory, to the same bytes as in more."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

ROWS, MEMORY = 6000, 600_000_000
EVALUATE = f"""
import json, sys, threading, time
from batchplan import Plan, evaluate, load_embeddings
from batchplan.runtime import resident_memory

data = load_embeddings("x.npy", single=True)

def figures(memory):
    options = {{"random_trials": 2, "device": "cpu", "memory": memory}}
    return evaluate(Plan.load("plan.npy"), data, **options).to_dict()

peak = 0

def watch():
    global peak
    while True:
        peak = max(peak, resident_memory())
        time.sleep(0.001)

threading.Thread(target=watch, daemon=True).start()
limited, most = figures({MEMORY}), peak
print(json.dumps([limited, most, figures(None)]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_evaluated_in_the_memory_that_planned(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((ROWS, 8), np.float32))

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "2"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-m", "batchplan", "partition", "x.npy", "--single", "--memory", str(MEMORY))
    limited, peak, unlimited = json.loads(run("-c", EVALUATE))
    assert limited == unlimited
    assert peak <= MEMORY
