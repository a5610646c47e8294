"""`Runtime.require_memory`: what every stage says when its work does not fit."""

from __future__ import annotations

import pytest

from batchplan import ResourceError
from batchplan.runtime import Runtime

TIGHT = Runtime(memory=1)  # less than Python itself takes


def test_refusal_says_what_needs_how_much_and_what_to_do():
    with pytest.raises(ResourceError) as caught:
        TIGHT.require_memory(3 * 10**9, "cluster: 5 rows", "plan the data in parts")
    assert str(caught.value) == (
        "cluster: 5 rows need 3.0 GB of memory and 0 B is left; raise --memory, or plan the data "
        "in parts"
    )


def test_hint_may_depend_on_what_is_left():
    with pytest.raises(ResourceError, match=r"raise --memory, or take 7$"):
        TIGHT.require_memory(1, "rows", lambda left: f"take {left + 7}")


def test_hint_may_be_absent():
    with pytest.raises(ResourceError, match=r"raise --memory$"):
        TIGHT.require_memory(1, "rows")


def test_what_fits_passes():
    Runtime(memory=1 << 40).require_memory(1, "rows")
    TIGHT.require_memory(0, "nothing")
