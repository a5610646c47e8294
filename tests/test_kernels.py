"""What searches of neighbours, batches and rows share: a sorted list, and comparisons of floats."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchplan.kernels import LANES, insert, njit, ordered, reaching, trailing_zeros


@given(st.integers(1, 6), st.lists(st.integers(-3, 3), max_size=20), st.randoms())
def test_keeps_the_largest_and_of_equal_ones_the_lower_name(size, values, random):
    offered = list(enumerate(values))
    random.shuffle(offered)
    kept, names = np.full(size, -np.inf), np.full(size, -1)
    for name, value in offered:
        if (-value, name) < (-kept[-1], names[-1]):
            insert(float(value), name, kept, names)
    expected = sorted((-value, name) for name, value in offered)[:size]
    filled = names >= 0
    assert list(zip(-kept[filled], names[filled], strict=True)) == expected


@njit
def places(bits, limits, start, least):
    """The lanes that reach their limit or the common one."""
    found = reaching(bits, limits, start, least)
    out = []
    while found:
        out.append(trailing_zeros(found))
        found &= found - np.uint64(1)
    return np.array(out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("start", [0, 3, 64])
def test_lanes_that_reach_a_limit(dtype, start):
    kind, dropped = (torch.int16, 16) if dtype == torch.bfloat16 else (torch.int32, 0)
    torch.manual_seed(start)
    floats = torch.randn(3 * LANES).to(dtype)
    floats[::7], floats[1::9] = torch.inf, -torch.inf
    floats[::5] = 0.25
    limits = torch.randn(3 * LANES).to(dtype)
    limits[:LANES:5] = 0.25

    def bits(values):
        whole = ordered(values.float().numpy().view(np.int32)) >> dropped
        return whole.astype(np.int16 if dropped else np.int32)

    for least in (torch.tensor(0.25, dtype=dtype), torch.tensor(-1.5, dtype=dtype)):
        expected = ((floats >= limits) | (floats >= least))[start : start + LANES]
        common = bits(least.reshape(1))[0]
        if expected.any():
            got = places(floats.view(kind).numpy(), bits(limits), start, common)
            assert np.array_equal(got, expected.nonzero()[:, 0].numpy())


def test_a_change_of_a_function_reaches_those_that_call_it(tmp_path):
    """The compiled caller holds the code of what it calls, though in another file."""
    package = Path(__file__).parents[1] / "batchplan"
    kept = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, tmp_path / "batchplan", ignore=kept)
    called, caller = (tmp_path / "batchplan" / name for name in ("called.py", "caller.py"))
    start = "from batchplan.kernels import njit\n"
    twice = "@njit\ndef twice(x):\n    return 2 * called(x)\n"
    caller.write_text(f"{start}from batchplan.called import called\n{twice}")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    script = "from batchplan.caller import twice; print(twice(10))"
    answers = []
    for added in (1, 22):
        called.write_text(f"{start}@njit\ndef called(x):\n    return x + {added}\n")
        command = [sys.executable, "-c", script]
        run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        answers.append(run.stdout)
    assert answers == ["22\n", "64\n"]
