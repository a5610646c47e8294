"""A plan of a repository, read with the library of the Hub, offline."""

from __future__ import annotations

from huggingface_hub import hf_hub_download

from batchplan.training import PlanBatchSampler
from tests.plans.test_hub import in_cache, make


def test_the_library_of_the_hub_finds_a_plan(tmp_path, monkeypatch):
    plan, saved = make(), tmp_path / "own.npz"
    plan.save(saved)
    in_cache(tmp_path / "hub", [saved])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    path = hf_hub_download("user/plans", "plans/own.npz", repo_type="dataset")
    assert list(PlanBatchSampler(path)) == [batch.tolist() for batch in plan]
