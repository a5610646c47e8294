"""A cluster whose object store is full: it spills to the disk."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("ray", reason="pip install batchplanner[ray]")

ROWS = 40_000  # whose numbers, in two tasks, are too many to travel without the object store
SCRIPT = """
import sys
import numpy as np
import ray
import batchplan

data = batchplan.load_embeddings(*sys.argv[1:])
options = {"mega_batches": 2, "batch_size": 64, "neighbors": 2, "refine": 0, "guard": False}
options |= {"relative_margin": None, "device": "cpu"}
alone = batchplan.plan(data, **options)
quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
ray.init("local", num_cpus=1, object_store_memory=80 << 20, **quiet)
held = []
for size in (10 << 20, 1 << 20, 128 << 10):
    for _ in range(12):
        held.append(ray.put(np.zeros(size, np.uint8)))
print(np.array_equal(batchplan.plan(data, ray="auto", **options).rows, alone.rows))
"""


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A function that plans on a full store, and returns what that prints."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # by default Ray spills nothing to a disk that is 95% full, as that of another user's may be
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "1")
    rng = np.random.default_rng(5)
    for name in ("x.npy", "y.npy"):
        np.save(tmp_path / name, rng.standard_normal((ROWS, 4)).astype(np.float32))

    def planned():
        command = [sys.executable, "-c", SCRIPT, "x.npy", "y.npy"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return planned


def test_what_does_not_fit_is_spilled(planned):
    assert planned() == ["True"]
