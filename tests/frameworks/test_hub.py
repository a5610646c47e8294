"""A plan in a repository, found with the library of the Hub, offline."""

from __future__ import annotations

from huggingface_hub import snapshot_download

from batchplan.training import PlanBatchSampler
from tests.plans.test_hub import in_cache, make


def test_a_plan_that_the_library_of_the_hub_finds(tmp_path, monkeypatch):
    plan, saved = make(), tmp_path / "plan.npz"
    plan.save(saved)
    in_cache(tmp_path / "hub", [saved])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = snapshot_download("user/plans", repo_type="dataset")
    sampler = PlanBatchSampler(f"{folder}/plans/plan.npz")
    assert list(sampler) == [batch.tolist() for batch in plan]
