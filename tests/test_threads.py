"""The number of threads, which is the caller's to set."""

import os
import subprocess
import sys

SCRIPT = """
import numpy as np, torch
import batchplan

rows = np.random.default_rng(0).standard_normal((200, 8), np.float32)
data = batchplan.Embeddings.from_arrays(rows)
batchplan.evaluate(batchplan.plan(data, "gcbs", batch_size=8), data)
print(torch.get_num_threads())
"""


def test_planning_and_measuring_leave_torch_its_threads():
    """Also where numba, which may have the same OpenMP, uses another number of them."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], stdout=-1, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n")
