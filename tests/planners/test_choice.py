"""What `batchplan.plan` chooses where no planner is named."""

import numpy as np
import pytest

import batchplan
from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.expectation import forecast
from batchplan.guard.describe import describe
from batchplan.planners.choice import choose, mega_batches
from batchplan.runtime import CHOICE, EXPECTED, WARNING, Runtime
from tests.observing import Observer


class Notes(Observer):
    """Keeps what it is told of choices."""

    def __init__(self):
        super().__init__()
        self.told = []

    def note(self, name, value):
        self.told.append((name, str(value)))


def pairs(noise, n=128, d=16):
    """x, and y so far from it."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d)).astype(np.float32)
    return x, x + noise * rng.standard_normal((n, d)).astype(np.float32)


def chosen(data, **wanted):
    notes = Notes()
    made = choose(Embeddings.from_arrays(*data), wanted, Runtime("cpu", observer=notes))
    return *made, notes.told


@pytest.mark.parametrize("noise", [0.3, 2])
def test_two_mega_batches_and_a_guard(noise):
    name, options, told = chosen(pairs(noise), batch_size=8)
    assert (name, options.mega_batches, options.relative_margin, options.guard) == (
        "partition", 2, 0.1, True,
    )  # fmt: skip
    assert [kind for kind, _ in told] == [CHOICE, EXPECTED, CHOICE, CHOICE]
    seen = describe(Embeddings.from_arrays(*pairs(noise)), Runtime("cpu"), limits=())
    expected = forecast(seen.beaten_positives, 8)
    assert told[1][1] == f"{expected}; see docs/law.md"
    assert "models gained less from more" in told[2][1]
    assert "90% of the own pair's similarity" in told[3][1]


def test_sides_that_do_not_belong_together_are_warned_of():
    x, y = pairs(0.3)
    name, options, told = chosen((x, y[::-1].copy()), batch_size=8)
    assert (name, options.guard) == ("partition", False)
    (warning,) = [value for kind, value in told if kind == WARNING]
    assert "check that row i of one side belongs to row i of the other" in warning


def test_too_few_rows_to_choose_from():
    name, options, told = chosen(pairs(0.3, n=40), batch_size=24)
    assert (name, options.batch_size) == ("random", 24)
    assert "less than two batches of 24" in told[0][1]
    assert chosen(pairs(0.3, n=40), batch_size=24, neighbors=4)[0] == "partition"


@pytest.mark.parametrize(
    ("rows", "fitting", "count", "why"),
    [
        (10_000, 10**9, 2, "gained less"),
        (1_000_000, 10**9, 16, "too much time"),
        (1_000_000, 20_000, 50, "too much memory"),
        (200, 10**9, 1, "two batches"),
        (512, 60, 4, "two batches"),
    ],
)
def test_how_many_mega_batches(rows, fitting, count, why):
    got, reason = mega_batches(rows, 64, fitting)
    assert got == count
    assert why in reason


def test_little_memory_makes_more_mega_batches(monkeypatch):
    data = pairs(0.3, n=4096, d=8)
    assert chosen(data, batch_size=8)[1].mega_batches == 2
    monkeypatch.setattr(Runtime, "memory_left", lambda self, device=None: 4_000_000)
    _, options, told = chosen(data, batch_size=8)
    assert options.mega_batches == 5
    assert "too much memory" in told[2][1]


def test_what_is_wanted_is_not_chosen():
    _, options, told = chosen(
        pairs(0.3), batch_size=8, mega_batches=3, max_score=0.9, similarity="dot"
    )
    assert (options.mega_batches, options.max_score, options.relative_margin) == (3, 0.9, None)
    assert [kind for kind, _ in told] == [CHOICE, EXPECTED]


def test_auto_chooses_mega_batches_alone():
    """By the same rule as `choose`; the plan is that of the number."""
    for noise in (0.3, 4.0):
        notes, data = Notes(), Embeddings.from_arrays(*pairs(noise))
        options = {"batch_size": 8, "device": "cpu"}
        made = batchplan.plan(
            data, planner="partition", **options, mega_batches="auto", observer=notes
        )
        count = chosen(pairs(noise), batch_size=8)[1].mega_batches
        named = batchplan.plan(data, planner="partition", **options, mega_batches=count)
        assert np.array_equal(made.rows, named.rows)
        assert made.metadata == named.metadata
        ((_, why),) = [note for note in notes.told if note[0] == CHOICE]
        assert why.startswith(f"{count} mega-batches, since ")


def test_auto_keeps_to_the_rows_that_are_allowed():
    notes, data = Notes(), Embeddings.from_arrays(*pairs(0.3))
    options = {"batch_size": 8, "device": "cpu", "mega_batches": "auto"}
    made = batchplan.plan(data, planner="partition", **options, mega_batch_rows=32, observer=notes)
    assert made.metadata.options["mega_batches"] == made.metadata.metrics["mega_batches"] == 4
    assert "more than 32 rows each are not allowed (--mega-batch-rows)" in notes.told[-1][1]
    with pytest.raises(InputError, match="mega batches: got 'many', expected an integer or auto"):
        batchplan.plan(data, planner="partition", mega_batches="many")


def test_plan_chooses_where_no_planner_is_named():
    x, y = pairs(0.3)
    notes = Notes()
    made = batchplan.plan(x, y, batch_size=8, device="cpu", observer=notes)
    data = Embeddings.from_arrays(x, y)
    named = batchplan.plan(
        data, planner="partition", batch_size=8, device="cpu", mega_batches=2, relative_margin=0.1
    )
    assert made.metadata == named.metadata
    assert np.array_equal(made.rows, named.rows)
    assert [kind for kind, _ in notes.told if kind == CHOICE] == [CHOICE] * 3
