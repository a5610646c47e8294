"""What searches of neighbours, batches and rows share: a sorted list, and comparisons of floats."""

import shutil
import subprocess
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


def test_a_change_reaches_all_that_hold_its_code_and_compiles_no_others(tmp_path, programs):
    """A compiled caller holds the code of functions and instructions in other files."""
    package = tmp_path / "batchplan"
    kept = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(__file__).parents[1] / "batchplan", package, ignore=kept)
    called, caller = package / "called.py", package / "caller.py"
    start = "from batchplan.kernels import njit, trailing_zeros\n"
    called.write_text(f"{start}@njit\ndef called(x):\n    return x + 1\n")
    twice = "@njit\ndef twice(x):\n    return 2 * called(x) + trailing_zeros(np.uint64(x))\n"
    caller.write_text(f"{start}import numpy as np\nfrom batchplan.called import called\n{twice}")
    show = "print(twice(12), sum(twice.stats.cache_hits.values()))"
    begin = "from tests.loaded import forget; forget()\nfrom batchplan.caller import twice"
    (tmp_path / "show.py").write_text(f"{begin}\n{show}\n")

    def answers():
        command = [programs / "python", "show.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    def change(path, old, new):  # and the size, by which Python knows a change in one second
        assert path.read_text().count(old) == 1
        path.write_text(path.read_text().replace(old, new))

    assert answers() == "28 0\n"
    change(package / "errors.py", "class InputError(", "class Changed: ...\n\nclass InputError(")
    for path in package.rglob("*.py"):
        path.touch()
    assert answers() == "28 1\n"
    change(called, "x + 1", "x + 33")
    change(package / "kernels.py", "builder.cttz(", "builder .ctlz(")
    assert answers() == "150 0\n"
