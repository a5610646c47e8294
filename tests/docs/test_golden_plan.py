"""The plan in sample_data, made again, has the same rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

import batchplan

from .blocks import ROOT

SAMPLE = ROOT / "sample_data"


@pytest.mark.parametrize(
    "paths",
    [(SAMPLE / "pairs.parquet",), (SAMPLE / "docstring", SAMPLE / "code")],
    ids=["parquet", "npy shards"],
)
def test_golden_plan_is_made_again(paths, tmp_path):
    golden = batchplan.Plan.load(SAMPLE / "plan.npy")
    made = batchplan.plan(
        batchplan.load_embeddings(*paths), planner="gcbs", batch_size=64, device="cpu"
    )
    np.testing.assert_array_equal(made.rows, golden.rows)
    np.testing.assert_array_equal(made.batch_offsets, golden.batch_offsets)
    made.save(tmp_path / "plan.npy")
    documents = [
        json.loads((folder / "plan.npy.json").read_text()) for folder in (SAMPLE, tmp_path)
    ]
    for document in documents:  # other versions may make the same plan
        document.pop("versions")
        document.pop("ids_digest", None)  # the shards have no ids
    assert documents[0] == documents[1]
