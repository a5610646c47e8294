"""Plans that are the same bytes on every processor, as docs/planners.md promises."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from batchplan import load_embeddings, plan
from batchplan.planners import PLANNERS

ROOT = Path(__file__).parents[2]
AS_BATCHES = {"hardneg": {"as_batches": True}, "scns": {"as_batches": True, "per_row": 2}}

# Digests of the rows of a plan of the sample data with seed 1.
SAME = {
    "random": "fe8bf990c403ac79",
    "shuffled": "fe8bf990c403ac79",
    "gcbs": "2b5c5f1f240840bf",
    "bcs": "105e9623fad0d313",
    "scb": "d58b2355132b1975",
    "osgd": "eb5034f0cfbd866c",
}


@pytest.fixture(scope="module")
def sample():
    return load_embeddings(ROOT / "sample_data" / "pairs.parquet")


# What these plans say of themselves; the others say nothing.
METRICS = {"gcbs": {"edges": 4175, "broken_pairs": 0}}
# Plans on this processor as another one would add.
ELSEWHERE = """
import dataclasses, json, sys
from batchplan import load_embeddings, plan
data = load_embeddings("x.npy", pair="y.npy")
json.dump(
    {
        planner: (made.rows.tolist(), dataclasses.asdict(made.metadata))
        for planner, options in json.load(sys.stdin).items()
        if (made := plan(data, planner=planner, device="cpu", batch_size=16, **options))
    },
    sys.stdout,
)
"""


@pytest.mark.parametrize("planner", SAME)
def test_plans_are_the_same(planner, sample):
    made = plan(sample, planner=planner, device="cpu", seed=1)
    rows = made.rows
    assert made.metadata.metrics == METRICS.get(planner, {})
    assert hashlib.blake2b(rows.astype("<i8").tobytes(), digest_size=8).hexdigest() == SAME[planner]


def test_the_page_has_a_line_for_every_planner():
    section = (ROOT / "docs" / "planners.md").read_text().partition("### On another processor")[2]
    table = re.findall(r"^\| (`.*?) \| .* \| (.*) \|$", section.partition("\n#")[0], re.MULTILINE)
    promised = {
        name: promise.startswith("the same bytes")
        for names, promise in table
        for name in re.findall(r"`(\w+)`", names)
    }
    assert promised == {name: name in SAME for name in [*PLANNERS, "refine"]}


def test_the_metrics_of_other_plans_differ_in_their_last_digits(programs, tmp_path):
    """And nothing else, where their rows are the same."""
    x, noise = np.random.default_rng(0).standard_normal((2, 200, 12), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x + noise / 2)
    planners = {planner: AS_BATCHES.get(planner, {}) for planner in PLANNERS}

    (tmp_path / "made.py").write_text(ELSEWHERE)

    def made(python, **environment):
        done = subprocess.run(
            [python, "made.py"], input=json.dumps(planners), cwd=tmp_path,
            capture_output=True, text=True, check=True, env={**os.environ, **environment},
        )  # fmt: skip
        return json.loads(done.stdout)

    here = made(programs / "python")
    elsewhere = made(sys.executable, MKL_CBWR="COMPATIBLE", ATEN_CPU_CAPABILITY="default")
    same = [planner for planner in PLANNERS if here[planner][0] == elsewhere[planner][0]]
    assert {*SAME, "partition"} <= {*same}
    for planner in same:
        (_, metadata), (_, other) = here[planner], elsewhere[planner]
        metrics, others = metadata.pop("metrics"), other.pop("metrics")
        assert metadata == other
        assert metrics == (others if planner in SAME else pytest.approx(others, rel=1e-4))
