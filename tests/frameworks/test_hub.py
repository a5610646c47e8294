"""The card and the plan of a repository, read with the library of the Hub, offline."""

from __future__ import annotations

import re

from huggingface_hub import DatasetCard

from tests.plans.test_card import NAMES, in_cache, make


def test_the_library_of_the_hub_reads_a_card_and_a_plan(tmp_path, monkeypatch):
    plan, saved = make(), tmp_path / "repo" / NAMES["file"]
    saved.parent.mkdir(parents=True)
    plan.save(saved)
    plan.save_card(tmp_path / "repo", **NAMES, model="user/model")
    card = DatasetCard.load(tmp_path / "repo" / "README.md")
    assert card.data.tags == ["batchplan", "contrastive-learning"]
    assert card.data.source_datasets == ["user/pairs"]
    in_cache(tmp_path / "hub", [saved])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    program = re.search(r"```python\n(.*?)```", card.text, re.DOTALL)[1]
    names = {}
    exec(compile(program, "README.md", "exec"), names)
    assert list(names["sampler"]) == [batch.tolist() for batch in plan]
