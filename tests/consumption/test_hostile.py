"""Traces with lines that no recorder writes: refused in one line, or judged."""

import json
import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.consumption import Trace, verify
from batchplan.errors import InputError

from .conftest import parts_of, plan_of, write

NUMBERS = st.integers(0, 9) | st.sampled_from(
    [-(2**63), -1, 1000, 2**20, 2**28 - 1, 2**31, 2**62, 2**63, 10**30]
)
ROWS = st.lists(NUMBERS, max_size=9) | st.permutations(range(8))
VALUES = NUMBERS | st.sampled_from(
    [None, True, 0.0, 7.0, 1e300, "", "\ud800\x1b[2J", [], [1.5], [[1]], [[1], 2], [True, 1], {},
     {"epoch": 0}, {"world_size": 3}, {"world_size": 2**28 - 1}, {"rank": "1"}]
)  # fmt: skip
KEYS = st.sampled_from(["epoch", "step", "rows", "plan", "end", "start"])
DOCUMENTS = st.one_of(
    st.fixed_dictionaries({"epoch": NUMBERS, "step": NUMBERS, "rows": ROWS}),
    st.fixed_dictionaries({"epoch": NUMBERS, "step": NUMBERS, "rows": ROWS, "plan": VALUES}),
    st.fixed_dictionaries({"epoch": NUMBERS, "end": VALUES}),
    st.dictionaries(KEYS, VALUES),
    VALUES,
)
LINES = DOCUMENTS.map(json.dumps).map(str.encode) | st.binary(max_size=40)
PLANS = {0: plan_of(rows=48, size=8), 2: plan_of(2, rows=48, size=8), 7: plan_of(rows=40, size=8)}


@settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "100")))
@given(
    st.sets(st.sampled_from(sorted(PLANS)), min_size=1), st.integers(1, 4), st.booleans(),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans(), LINES), max_size=4),
)  # fmt: skip
def test_made_up_lines(which, ranks, partial, changes):
    """In the places of some lines, or between them, of a run that follows the first plan."""
    plans = {number: PLANS[number] for number in which}
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name), [parts_of(PLANS[min(which)], ranks)] * 2)
        files = sorted(folder.iterdir())
        for rank, at, instead, line in changes:
            path = files[rank % len(files)]
            lines = path.read_bytes().split(b"\n")
            lines[at : at + instead] = [line]
            path.write_bytes(b"\n".join(lines))
        try:
            verdict = verify(plans, Trace(folder), partial=partial)
        except InputError:
            return
    json.dumps(verdict.to_dict(), allow_nan=False)
    assert (verdict.first is None) == verdict.exact
    assert len(verdict.epochs) < 1100
    assert verdict.steps < len(verdict.epochs) * 4 * 12 + 4 * len(files) * 2**21
