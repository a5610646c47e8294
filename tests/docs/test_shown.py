"""What counts as the output that a page shows."""

import pytest

from .shown import TOLERANCES, require_same

TABLE = """\
   planner         reduction  oracle    loss  seconds    memory
1  gcbs                10.3%   12.4%  0.8197  ...
2  partition            1.9%    2.3%  0.6751  ...
   random batches       0.0%    0.0%  0.6423
"""
PRINTED = TABLE.replace("...", "1.5  300 MB")


def same(shown, printed, like=""):
    try:
        require_same(shown, printed, "a page", like)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("like", ["", *TOLERANCES])
def test_blanks_times_and_what_is_left_out_may_differ(like):
    assert same(TABLE, PRINTED, like)
    assert same(TABLE, PRINTED.replace("  ", " ").replace("1.5", "27.0"), like)
    assert same("seconds 0.2, of which read 0.1\n", "seconds 99.2, of which plan 9.1\n", like)
    assert same("...\nbatches 32 of 64\n...\n", "rows 8\nbatches 32 of 64\nplan p.npy\n", like)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("   1.9%", "   1.8%"),
        ("   1.9%", "   1.4%"),
        ("   2.3%", "   2.6%"),
        ("0.6751", "0.6741"),
        ("0.6751", "0.6801"),
    ],
)
def test_decimals_near_those_shown(old, new):
    printed = PRINTED.replace(old, new)
    assert printed != PRINTED
    assert same(TABLE, printed, "near")
    assert not same(TABLE, printed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("   1.9%", "   1.3%"),  # too far
        ("   1.9%", "  -1.9%"),
        ("0.6751", "0.6802"),
        ("0.6751", "nan"),
        ("2.3%", "2.3"),  # no percentage
        ("  0.6751", ""),
        ("10.3%", "10.2%"),  # of a plan that is the same everywhere
        ("0.8197", "0.8196"),
        ("0.6423", "0.6422"),
        ("2  partition", "3  partition"),
        ("partition", "partitions"),
        ("seconds", "minutes"),
    ],
)
def test_anything_else_is_another_output(old, new):
    printed = PRINTED.replace(old, new)
    assert printed != PRINTED
    assert not same(TABLE, printed, "near")
    assert not same(TABLE, printed)


def test_figures_of_training_may_differ_by_more():
    shown = "epoch 3: loss 0.2824, reciprocal rank 0.8295\n"
    for printed, near, trained in (
        ("0.2870", True, True),
        ("0.3320", False, True),
        ("0.3330", False, False),
    ):
        printed = shown.replace("0.2824", printed)
        assert (same(shown, printed, "near"), same(shown, printed, "trained")) == (near, trained)


def test_whole_numbers_are_never_near():
    assert same("4 passes, mean loss +0.0416\n", "4 passes, mean loss +0.0431\n", "near")
    assert not same("4 passes, mean loss +0.0416\n", "3 passes, mean loss +0.0416\n", "near")
    assert not same("rows 2,048.5\n", "rows 2,049.5\n", "near")
