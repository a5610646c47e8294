"""`Trace`: traces that are damaged, incomplete or of several starts."""

import json

import pytest

from batchplan.consumption import Trace
from batchplan.errors import InputError

START = {"start": {"rank": 0, "world_size": 1}}


def step(epoch, number, rows=(1, 2)):
    return {"epoch": epoch, "step": number, "rows": list(rows), "plan": None}


@pytest.fixture
def traced(tmp_path):
    def traced(*lines):
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        (tmp_path / "trace.0.jsonl").write_text("\n".join(texts))
        return Trace(tmp_path)

    return traced


def test_steps_that_were_trained_again_count_as_they_were_then(traced):
    trace = traced(
        START, step(0, 0), step(0, 1), {"epoch": 0, "end": 2}, step(1, 0), step(1, 1), step(1, 2),
        START, step(1, 1, [7]),
    )  # fmt: skip
    (passes,) = trace.ranks
    assert passes[0].ended
    assert not passes[1].ended
    assert {number: rows.tolist() for number, rows in passes[1].rows.items()} == {0: [1, 2], 1: [7]}
    assert (passes[0].begun, passes[1].begun) == (0, 1)
    (passes,) = traced(START, step(0, 0), step(1, 0), START, step(0, 0, [7])).ranks
    assert list(passes) == [0]


def test_a_line_that_was_cut(traced):
    half = json.dumps(step(0, 1))[:20]
    (passes,) = traced(START, step(0, 0), half).ranks
    assert passes[0].steps == 1
    line = json.dumps(START, separators=(",", ":"))
    (passes,) = traced(START, step(0, 0), half, line, step(0, 1)).ranks
    assert passes[0].steps == 2


@pytest.mark.parametrize(
    "line",
    [
        "{", "[]", "1", "{}", '{"epoch": 0}', '{"epoch": -1, "step": 0, "rows": []}',
        '{"epoch": 0, "step": "1", "rows": []}', '{"epoch": 0, "step": 0, "rows": [0.5]}',
        '{"epoch": 0, "step": 0, "rows": [[1]]}', '{"epoch": 0, "step": 0, "rows": ["1"]}',
        '{"epoch": 0, "step": 0, "rows": [99999999999999999999]}', '{"start": 1}',
        '{"epoch": 0, "step": 16777216, "rows": [1]}', '{"epoch": true, "end": 1}',
        '{"epoch": 65536, "end": 1}',
        '{"epoch": 0, "step": 0, "rows": [-1]}', '{"epoch": 0, "step": 0, "rows": [true, 1]}',
        '{"epoch": 0, "step": 0, "rows": [4611686018427387904]}',
        '{"epoch": 0, "step": 0, "rows": null}',
    ],
)  # fmt: skip
def test_a_damaged_trace(line, traced):
    with pytest.raises(InputError, match=r"trace\.0\.jsonl: line 2: is not of a trace"):
        traced(START, line, step(0, 1))


def test_a_run_may_be_recorded_late_and_with_gaps(traced):
    (passes,) = traced(START, step(60_000, 70_000), step(60_000, 80_000), step(60_500, 0)).ranks
    assert sorted(passes) == [60_000, 60_500]


def test_no_trace(tmp_path):
    with pytest.raises(InputError, match=r"has no trace\.RANK\.jsonl"):
        Trace(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        Trace(tmp_path / "none")
    (tmp_path / "trace.99999999999.jsonl").write_text(json.dumps(START))
    with pytest.raises(InputError, match=r"traces of 1 ranks.* no trace\.0\.jsonl"):
        Trace(tmp_path)
