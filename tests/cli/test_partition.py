"""batchplan partition and its options: what is refused, and what it makes of the sample."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from batchplan.plans import Plan

SAMPLE = Path(__file__).parents[2] / "sample_data" / "pairs.parquet"
REFUSED = [
    (
        ["--source-mix", "proportional"],
        "source mix: got proportional without --source-column; name one",
    ),
    (["--group-column", "nowhere"], "nowhere"),
    (["--guard-penalty", "nan"], "guard penalty: got nan, expected a number of at least 0"),
    (["--no-guard", "--absolute-margin", "0.1"], "absolute margin 0.1: given with --no-guard"),
]


@pytest.mark.parametrize(("words", "says"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_refusals(words, says, parquet, refused):
    code = 3 if says == "nowhere" else 2
    refused("partition", parquet, "-b", "8", *words, parts=[says], code=code)


def test_mega_batches_are_a_number_or_auto(parquet, done, run):
    done("partition", parquet, "-b", "8", "--mega-batches", "auto", "-o", "plan.npz", "-q")
    assert Plan.load("plan.npz").metadata.options["mega_batches"] == 2
    result = run("partition", parquet, "--mega-batches", "x")
    assert result.exit_code == 2
    assert "'x' is not a valid integer or auto" in result.stderr


def labels(name):
    return pq.read_table(SAMPLE, columns=[name])[name].to_numpy()


def test_sample(some, done):
    result = done("partition", some, "--json", "-o", "plan.npz")
    summary = json.loads(result.stdout)
    assert summary["passes"] == 1
    assert summary["broken_pairs"] > 0
    made = Plan.load("plan.npz")
    assert sorted(made.rows) == list(range(700))
    done("partition", some, "--no-guard", "-o", "free.npz", "-q")
    report = done("evaluate", "free.npz", some, "--json", "--random-trials", 2)
    assert json.loads(report.stdout)["gap_reduction"] > 0.3


def test_groups_and_sources_of_the_sample(done):
    words = ["--group-column", "group", "--source-column", "source", "-b", 16, "-o", "plan.npz"]
    done("partition", SAMPLE, *words, "-q", "--no-guard")
    sources, groups = labels("source"), labels("group")
    made = Plan.load("plan.npz")
    assert sorted(made.rows) == list(range(2048))
    assert all(len(set(sources[batch])) == 1 for batch in made.batches())
    several = np.bincount(sources)[sources] > 16  # a source of one batch has nowhere to part to
    parted = [batch for batch in made.batches() if several[batch[0]]]
    assert all(len(set(groups[batch])) == len(batch) for batch in parted)
    done("partition", SAMPLE, *words, "-q", "--force", "--source-mix", "proportional",
         "--no-guard")  # fmt: skip
    made = Plan.load("plan.npz")
    assert all(len(set(groups[batch])) == len(batch) for batch in made.batches())


def test_summary(parquet, done):
    text = done("partition", parquet, "-b", 8).stderr
    gained = re.search(r"objective +([\d.-]+) -> ([\d.-]+) nats \(([+-][\d.]+)\), from", text)
    start, end, gain = map(float, gained.groups())
    assert end - start == pytest.approx(gain, abs=2e-4)
    assert gain > 0
    shares = r"guard +([\d.]+)% of in-batch pairs too similar \(random ([\d.]+)%\)"
    random = float(re.search(shares, text)[2])
    apart = done("partition", parquet, "-b", 8, "--guard-penalty", "inf", "-f").stderr
    assert float(re.search(shares, apart)[1]) < random
    assert ("warning" in text) == (random > 5)
    strict = done("partition", parquet, "-b", 8, "--relative-margin", 0.9, "-f").stderr
    assert "warning      the guard excludes " in strict
    assert "pairs not separated" not in text


def test_summary_of_a_guard_that_excludes_little(parquet, done):
    text = done("partition", parquet, "-b", 8, "--max-score", 2).stderr
    assert "guard        0.0% of in-batch pairs too similar (random 0.0%)" in text
    assert "warning" not in text
    free = done("partition", parquet, "-b", 8, "--no-guard", "-o", "free.npy").stderr
    assert "nats (+" in free
    assert "guard" not in free.partition("seconds")[0]


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray(npy, refused):
    says = ["ray: is not installed; run pip install 'batchplanner[ray]'"]
    refused("partition", *npy, "-b", "8", "--ray", code=4, parts=says)
