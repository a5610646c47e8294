"""Plans in the layout of the Hugging Face Hub's cache."""

import numpy as np
import pytest

from batchplan import Plan
from batchplan.plans import Batching
from batchplan.training import PlanBatchSampler


def make():
    order = np.random.default_rng(0).permutation(50)
    return Plan.cut(order, Batching(8), num_rows=50, planner="random", seed=3)


def in_cache(folder, files):
    """The files of a folder as the Hub's cache keeps them: links to blobs."""
    repository = folder / "datasets--user--plans"
    snapshot, blobs = repository / "snapshots" / ("a" * 40), repository / "blobs"
    blobs.mkdir(parents=True)
    for number, source in enumerate(files):
        (blobs / f"{number:040x}").write_bytes(source.read_bytes())
        link = snapshot / "plans" / source.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../../blobs/{number:040x}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    return snapshot / "plans"


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".jsonl", ".txt"])
def test_a_plan_in_the_cache_of_the_hub(suffix, tmp_path):
    plan, saved = make(), tmp_path / "repo"
    saved.mkdir()
    plan.save(saved / f"plan{suffix}")
    path = in_cache(tmp_path / "hub", sorted(saved.iterdir())) / f"plan{suffix}"
    assert path.is_symlink()
    assert Plan.load(path) == plan
    assert list(PlanBatchSampler(path)) == [batch.tolist() for batch in plan]
