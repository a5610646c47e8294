"""Traces with lines that no recorder writes: refused in one line, or judged."""

import json
import os
import tempfile
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
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


STEPS = 2000
BENIGN = [(0, step) for step in range(2 * STEPS)]
TRACES = {
    "the last step again and again": [(0, min(step, STEPS - 1)) for step in range(2 * STEPS)],
    "back to the first, and the last": [(0, (step % 2) * (step + 1)) for step in range(2 * STEPS)],
    "each from the last": [(0, 2 * STEPS - step) for step in range(2 * STEPS)],
    "an epoch for each, and the last": [(min(step, STEPS - 1), 0) for step in range(2 * STEPS)],
    "the last of all": [*BENIGN[: 2 * STEPS - 1], (0, (1 << 24) - 2)],
    "in the last epoch": [*BENIGN[: 2 * STEPS - 1], ((1 << 16) - 1, (1 << 24) - 2)],
    "a few, and the last of all": [(0, 0), (0, (1 << 24) - 2)] * 9,
    "many last ones": [(epoch, (1 << 24) - 2) for epoch in range(300)],
    "one of each hundred": [(epoch, 0) for epoch in range(0, 1 << 16, 100)],
}


def taken(folder, places):
    """Seconds of the processor for a trace of these places, and bytes that it needed."""
    folder.mkdir()
    lines = [json.dumps({"epoch": e, "step": s, "rows": list(range(8))}) + "\n" for e, s in places]
    (folder / "trace.0.jsonl").write_text("".join(lines))
    began = time.process_time()
    tracemalloc.start()
    with suppress(InputError):
        json.dumps(verify(PLANS, Trace(folder)).to_dict())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return time.process_time() - began, peak


@pytest.mark.parametrize("name", TRACES)
def test_time_and_memory_in_proportion(name, tmp_path):
    usual, most = taken(tmp_path / "usual", BENIGN)
    seconds, bytes_ = taken(tmp_path / "hostile", TRACES[name])
    assert seconds < 10 * usual + 0.5
    assert bytes_ < 4 * most + (16 << 20)


def test_a_trace_that_lacks_nearly_all_is_refused(tmp_path):
    folder = write(tmp_path / "trace", [parts_of(PLANS[0])])
    with open(folder / "trace.0.jsonl", "a") as stream:
        stream.write('{"epoch": 65535, "step": 16777214, "rows": [1]}\n')
    with pytest.raises(InputError, match="too few to compare; give the plans and the trace of one"):
        verify(PLANS, Trace(folder))
    assert len(verify(PLANS, Trace(folder), epochs=2).epochs) == 2
