"""Plans in repositories of the Hugging Face Hub: their card, and the layout of its cache."""

import json
import re

import numpy as np
import pytest
import yaml

from batchplan import InputError, Plan
from batchplan.plans import Batching
from batchplan.training import PlanBatchSampler

NAMES = {"repository": "user/plans", "file": "plans/epoch-1.npz", "dataset": "user/pairs"}


def make(**facts):
    facts = {"planner": "random", "seed": 3, **facts}
    order = np.random.default_rng(0).permutation(50)
    return Plan.cut(order, Batching(8), num_rows=50, **facts)


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


def test_the_card(tmp_path):
    hostile = "```\n---\n# <script>"
    plan = make(options={"names": hostile, "url": "s3://key:secret@host/x"}, metrics={"gap": 0.5})
    plan.save_card(tmp_path, **NAMES, model="user/model")
    _, front, body = (tmp_path / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front) == {
        "tags": ["batchplan", "contrastive-learning"], "source_datasets": ["user/pairs"],
    }  # fmt: skip
    assert "7 batches of 8 over 50 rows" in body
    assert "vectors of `user/model`" in body
    made = json.loads(re.search(r"^```json\n(.*?)^```$", body, re.DOTALL | re.MULTILINE)[1])
    assert (made["planner"], made["seed"], made["figures"]) == ("random", 3, {"gap": 0.5})
    assert made["options"]["names"] == hostile
    assert "secret" not in body
    with pytest.raises(InputError, match=r"README\.md: exists already"):
        plan.save_card(tmp_path, **NAMES)
    plan.save_card(tmp_path, **NAMES, force=True)
    assert "user/model" not in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(
    "wrong",
    [
        {"dataset": "pairs"},
        {"dataset": "user/pairs\n---"},
        {"repository": 'user/plans")'},
        {"model": "https://host/model"},
        {"file": "../plan.npz\n"},
        {"file": "/plan.npz"},
    ],
)
def test_names_that_no_repository_has(wrong, tmp_path):
    (name,) = wrong
    with pytest.raises(InputError, match=f"{name}: got .*, expected a"):
        make().save_card(tmp_path, **{**NAMES, **wrong})
    assert not list(tmp_path.iterdir())
