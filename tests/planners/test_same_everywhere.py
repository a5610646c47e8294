"""Plans that are the same bytes on every processor, as docs/planners.md promises."""

import hashlib
import re
from pathlib import Path

import pytest

from batchplan import load_embeddings, plan
from batchplan.planners import PLANNERS

ROOT = Path(__file__).parents[2]

# Digests of the rows of a plan of the sample data with seed 1.
SAME = {
    "random": "fe8bf990c403ac79",
    "fixed": "fe8bf990c403ac79",
    "shuffled": "fe8bf990c403ac79",
    "gcbs": "2b5c5f1f240840bf",
    "bcs": "105e9623fad0d313",
    "scb": "d58b2355132b1975",
    "osgd": "eb5034f0cfbd866c",
}


@pytest.fixture(scope="module")
def sample():
    return load_embeddings(ROOT / "sample_data" / "pairs.parquet")


@pytest.mark.parametrize("planner", SAME)
def test_rows_are_the_same(planner, sample):
    rows = plan(sample, planner, device="cpu", seed=1).rows
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
