"""The sample data: real pairs of documentation and code, embedded by a real model."""

import json
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from batchplan.data import Embeddings, load_embeddings
from batchplan.quality import evaluate
from tests.observing import Observer

SAMPLE = Path(__file__).parents[2] / "sample_data" / "pairs.parquet"


@pytest.fixture(scope="module")
def sample():
    return load_embeddings(SAMPLE)


@pytest.fixture(scope="module")
def part(sample):
    """More rows than a tile has."""
    return Embeddings.from_arrays(*(side.rows(0, 1100) for side in (sample.x, sample.y)))


def test_against_brute_force(helpers, part):
    plan = helpers.make_plan(part, 60, "pad")
    options = {"temperature": 0.05, "similarity": "cosine", "random_trials": 2}
    options["guard"] = False
    got = evaluate(plan, part, **options).to_dict()
    expected = helpers.brute_force(plan, part, **options)
    # random_z divides by the standard deviation of two trials, hence the tolerance
    assert helpers.differences(got, expected, 1e-4) == []


def test_losses_are_ordered_as_on_real_data_they_must(helpers, sample):
    found = evaluate(helpers.make_plan(sample, 64), sample, random_trials=8)
    assert found.loss_train < found.loss_oracle < found.loss_global
    assert abs(found.random_z) < 10  # the plan is random
    assert found.loss_random == pytest.approx(found.loss_train, abs=0.1)


def test_same_bytes_whatever_the_threads(use_threads, helpers, part):
    plan = helpers.make_plan(part, 64)
    results = []
    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        use_threads(threads)
        found = evaluate(plan, part, random_trials=3, device="cpu")
        results.append(json.dumps(found.to_dict(), allow_nan=False))
    assert results[0] == results[1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_on_a_gpu(helpers, sample):
    plan = helpers.make_plan(sample, 64)
    on_cpu, on_gpu = (evaluate(plan, sample, device=device).to_dict() for device in ("cpu", "cuda"))
    assert helpers.differences(on_gpu, on_cpu, 1e-3) == []


def test_progress_counts_up_to_its_totals(helpers, sample):
    observer = Observer()
    evaluate(helpers.make_plan(sample, 64), sample, random_trials=2, observer=observer)
    totals, done = observer.totals, observer.done
    assert totals["evaluate"] == sample.num_rows
    assert done["evaluate"] == totals["evaluate"]
    assert done["random batches"] == totals["random batches"] == 2
    assert {"evaluate", "random batches"} <= observer.seconds.keys()


def test_a_plan_of_neighbours_beats_random(helpers, sample):
    """Rows sorted along the first principal axis: crude, and still harder than chance."""
    x = sample.x.rows(0, sample.num_rows).astype(np.float32)
    axis = np.linalg.eigh(np.cov(x, rowvar=False))[1][:, -1]
    random = helpers.make_plan(sample, 64)
    sorted_plan = type(random)(np.argsort(x @ axis), random.batch_offsets, random.metadata)
    found = evaluate(sorted_plan, sample, random_trials=8)
    assert found.random_z > 5
    assert found.gap_reduction > 0
    assert found.oracle_share > 0
