"""The same data and options give the same bytes, whatever the threads, folder and code path."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from batchplan.graph import csr
from batchplan.planners import plan
from batchplan.planners.papers.gcbs import ordering

SCRIPT = """
import sys
from batchplan.data import load_embeddings
from batchplan.planners import plan

x, y, output = sys.argv[1:]
embeddings = load_embeddings(x, y)
options = {"neighbors": 30, "batch_size": 32, "seed": 3, "batch_order": "shuffled"}
plan(embeddings, planner="gcbs", device="cpu", **options).save(output)
"""


def test_threads_and_folder(data, tmp_path):
    embeddings = data("related", 1500)
    for name, side in (("x", embeddings.x), ("y", embeddings.y)):
        np.save(tmp_path / f"{name}.npy", side.rows(0, 1500))
    outputs = []
    for threads in ("1", "2"):
        folder = tmp_path / f"with {threads}"
        folder.mkdir()
        count = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        outputs.append(folder / "plan.npz")
        subprocess.run(
            [sys.executable, "-c", SCRIPT, "../x.npy", "../y.npy", "plan.npz"],
            check=True, cwd=folder, env=os.environ | count,
        )  # fmt: skip
    here = tmp_path / "plan.npz"
    options = {"neighbors": 30, "batch_size": 32, "seed": 3, "batch_order": "shuffled"}
    plan(embeddings, planner="gcbs", device="cpu", **options).save(here)
    assert {path.read_bytes() for path in outputs} == {here.read_bytes()}


@pytest.mark.parametrize("name", ["integers", "duplicates", "hubs", "sorted_clusters", "single"])
def test_device_code_plans_the_same(data, request, monkeypatch, name):
    """All that runs on other devices, run on the CPU, from the tiles to the order."""
    options = {"device": "cpu", "quantile": 0.95, "batch_size": 16}
    on_cpu = plan(data(name), planner="gcbs", **options)
    request.getfixturevalue("device_code")
    monkeypatch.setattr(csr, "union_with_transpose", csr._union_torch)

    def by_levels(indptr, indices, _by_rank):
        parts = torch.from_numpy(indptr), torch.from_numpy(indices)
        return ordering._level_synchronous(*parts).numpy()

    monkeypatch.setattr(ordering, "_sequential", by_levels)
    on_device = plan(data(name), planner="gcbs", **options)
    assert np.array_equal(on_device.rows, on_cpu.rows)
    assert on_device.metadata == on_cpu.metadata
