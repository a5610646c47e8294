"""Tensors as Ray Data writes them, before and after its types are registered."""

import subprocess
import sys

import numpy as np

import batchplan

ROWS = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


def test_tensors_are_read_whatever_is_imported(tmp_path, cluster):
    import ray.data

    ray.data.from_numpy(ROWS).write_parquet(str(tmp_path / "x"))
    loaded = batchplan.load_embeddings(tmp_path / "x", single=True)
    np.testing.assert_array_equal(loaded.x.rows(0, 20), ROWS)
    code = "import sys, batchplan; print(batchplan.load_embeddings(sys.argv[1]).fingerprint)"
    command = [sys.executable, "-c", code, str(tmp_path / "x")]  # a process without Ray
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == loaded.fingerprint
