"""Files that are replaced or removed while they are mapped."""

import numpy as np

from batchplan.data import load_embeddings
from batchplan.planners import plan

X, Y = np.random.default_rng(0).standard_normal((2, 40, 6)).astype(np.float32)


def test_what_was_converted_is_in_memory(tmp_path):
    np.save(tmp_path / "wide.npy", X.astype(np.float64))
    wide = load_embeddings(tmp_path / "wide.npy", single=True)
    np.save(tmp_path / "wide.npy", Y.astype(np.float64))
    np.testing.assert_array_equal(wide.x.rows(0, 40), X)


def test_a_file_that_was_replaced_or_removed_is_still_mapped(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    data = load_embeddings(tmp_path / "x.npy", tmp_path / "y.npy")
    np.save(tmp_path / "new.npy", Y[::-1])
    (tmp_path / "new.npy").replace(tmp_path / "y.npy")
    (tmp_path / "x.npy").unlink()
    made = plan(data, planner="gcbs", batch_size=8, device="cpu")
    assert made.metadata.fingerprint == data.fingerprint
    np.testing.assert_array_equal(data.y.rows(0, 40), Y)
