"""Plans of a few hundred rows, and data of every kind to put in their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from batchplan.plans import Batching, Plan

ROWS = 203


def plan_of(rows=ROWS, batch_size=8, seed=0, **batching):
    """A plan of rows in random order."""
    order = np.random.default_rng(seed).permutation(rows)
    return Plan.cut(order, Batching(batch_size, **batching), num_rows=rows)


@pytest.fixture
def table():
    """Columns of the types that texts, vectors and labels have."""
    rng = np.random.default_rng(1)
    vectors = pa.array(rng.standard_normal(ROWS * 3).astype(np.float32))
    return pa.table(
        {
            "text": [f'row {i} "é\n' + "x" * (i % 7) for i in range(ROWS)],
            "number": np.arange(ROWS) * 3,
            "score": rng.standard_normal(ROWS),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 3),
            "tags": [["a", None, "b"][: i % 4] if i % 5 else None for i in range(ROWS)],
            "nested": [{"kind": i % 2 == 0, "name": None if i % 3 else "n"} for i in range(ROWS)],
        }
    )
