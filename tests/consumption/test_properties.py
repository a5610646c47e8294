"""A perfect replay is exact, and no fault is: whatever the plan, the ranks and the place."""

import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from batchplan.consumption import Trace, verify
from batchplan.plans import Batching, Plan

from .conftest import names, parts_of, write


@st.composite
def plans(draw):
    devices = draw(st.sampled_from([1, 2, 3, 4]))
    size = draw(st.integers(2, 9)) * devices
    steps = draw(st.integers(2 * devices, 20))
    shared = draw(st.booleans())
    rows = size * steps * (1 if shared else devices) + draw(st.integers(0, size * devices - 1))
    batching = Batching(
        size, world_size=devices, tail=draw(st.sampled_from(["drop", "pad"])),
        scope="global" if shared else "device",
    )  # fmt: skip
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(rows)
    return Plan.cut(order, batching, num_rows=rows)


def judge(plan, *epochs, **options):
    with tempfile.TemporaryDirectory() as folder:
        return verify({0: plan}, Trace(write(Path(folder), epochs, **options)))


@given(plans(), st.integers(1, 3))
def test_a_perfect_replay_is_exact(plan, epochs):
    verdict = judge(plan, *[parts_of(plan)] * epochs)
    assert verdict.exact
    assert verdict.findings == {}
    assert verdict.intact[0] == verdict.intact[1] == verdict.steps


@given(plans(), st.integers(0), st.integers(0))
def test_a_step_that_is_left_out(plan, rank, step):
    """All ranks leave it out, or one of them."""
    parts = parts_of(plan)
    steps, ranks = len(parts[0]), len(parts)
    for some in {(rank % ranks,), tuple(range(ranks))}:
        lost = [
            [batch for number, batch in enumerate(own) if number != step % steps or r not in some]
            for r, own in enumerate(parts)
        ]
        verdict = judge(plan, lost)
        assert not verdict.exact
        assert verdict.findings
        if len(some) < ranks:
            assert "unequal steps" in names(verdict)
        elif step % steps == steps - 1:
            assert names(verdict) == ["tail dropped"]


@given(plans(), st.data())
def test_two_rows_that_change_places(plan, data):
    """Between two batches, however far apart, the step is not exact, and says where."""
    parts = parts_of(plan)
    places = [(r, s) for r in range(len(parts)) for s in range(len(parts[0]))]
    (a, b) = data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=2, unique=True))
    one, other = parts[a[0]][a[1]], parts[b[0]][b[1]]
    assume(one[0] not in other and other[0] not in one)
    one[0], other[0] = other[0], one[0]
    verdict = judge(plan, parts)
    assert not verdict.exact
    assert verdict.findings
    assert (verdict.first.step, verdict.first.rank) == min((s, r) for r, s in (a, b))
    assert verdict.intact == (verdict.steps - 2, verdict.steps)


@given(plans())
def test_faults_are_named(plan):
    parts = parts_of(plan)
    ranks = len(parts)
    order = [batch for step in zip(*parts, strict=True) for batch in step]
    first = [[*own, own[0]] for own in parts]
    faults = {
        "zero steps": [[]] * ranks,
        "single rows": [[[row] for row in chain(*own)] for own in parts],
        "another batch size": [
            [[*one, *two] for one, two in zip(own[::2], own[1::2], strict=False)] for own in parts
        ],
        "padded from the first batches": first,
    }
    if ranks > 1:
        faults["dealt out twice"] = [own[rank::ranks] for rank, own in enumerate(parts)]
        faults["the whole plan on every rank"] = [order] * ranks
        faults["the same part on every rank"] = [parts[1]] * ranks
        faults["another number of devices"] = parts[1:]
    for name, seen in faults.items():
        verdict = judge(plan, seen)
        assert not verdict.exact, name
        assert name in names(verdict), name


@given(plans(), st.integers(1))
def test_a_run_that_stopped(plan, stop):
    parts = parts_of(plan)
    seen = [own[: stop % len(own)] for own in parts]
    assume(seen[0])
    assert names(judge(plan, seen, ended=False)) == ["ended early"]
