"""The kernels for CUDA devices compile without one."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from batchplan.graph.cuda import kernels

FLOATS, INTS, LONGS = "*fp32", "*i32", "*i64"


def compiled(kernel, capability, types, constants, **options):
    names = kernel.arg_names
    signature = dict(zip(names, types)) | dict.fromkeys(constants, "constexpr")
    places = {(names.index(name),): value for name, value in constants.items()}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(names)
        if signature[name][0] == "*" or name == "depth"
    }
    source = ASTSource(kernel, signature, places, aligned)
    return compile(source, target=GPUTarget("cuda", capability, 32), options=options)


for capability, most, product in ((80, 166912, "mma.sync"), (90, 232448, "wgmma.mma_async")):
    tile = kernels.Tile()
    sides = {"ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.depth, "PRECISION": "ieee"}
    made = compiled(
        kernels._screen, capability,
        ["*bf16", "*bf16", FLOATS, FLOATS, FLOATS, FLOATS, INTS, "i32", "i32", "i32", "i32"],
        sides, num_warps=tile.warps, num_stages=4 if capability == 90 else 3,
    )
    assert made.asm["cubin"]
    assert product in made.asm["ptx"], "not on matrix units"
    assert made.metadata.shared <= most, made.metadata.shared
block = {"ROWS": kernels._ROWS, "WORDS": kernels._WORDS}
compiled(kernels._count, 90, [INTS, INTS, "i32", "i32"], block)
compiled(kernels._list, 90, [INTS, LONGS, INTS, INTS, "i32", "i32", "i32", "i32"], block)
types = [FLOATS, FLOATS, INTS, INTS, "i32", FLOATS, "i32", "i32"]
made = compiled(kernels._score, 90, types, {"PAIRS": kernels._PAIRS, "DEPTH": kernels._DEPTH})
assert "fma.rn.f64" in made.asm["ptx"]
"""


def test_compiles_for_two_generations(tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
