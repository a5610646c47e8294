"""A plan depends on the rows, the options and the seed: not on threads, shards, formats, memory."""

import hashlib
from dataclasses import replace
from itertools import cycle, pairwise, product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import ResourceError
from batchplan.data import Embeddings, load_embeddings
from batchplan.planners import PLANNERS, plan
from batchplan.refinement import refine
from batchplan.runtime import resident_memory

from .test_contract import AS_BATCHES

MANY, FEW = 1100, 330  # more rows than a tile has, and fewer
# Planners that would take long with many rows: tests of their own cut these into more blocks.
SLOW = ("partition", "gcbs", "bcs", "osgd")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """By their number and by how the files are cut: the same rows."""
    return {n: _write_and_load(tmp_path_factory.mktemp("rows"), n) for n in (MANY, FEW)}


def _write_and_load(folder, n):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 12))
    y = x + rng.standard_normal((n, 12)) / 2
    # Numbers of few digits make ties, and so do rows that there are twice.
    x, y = (np.round(2 * side).astype(np.float32) / 2 + np.float32(0.25) for side in (x, y))
    x[n // 2 : n // 2 + 40], y[n // 2 : n // 2 + 40] = x[:40], y[:40]
    cuts = {
        "whole": [0, n],
        "rows": [*range(30), 29 + n // 2, n - 1, n],  # shards of a row, and two large ones
        "thirds": [0, n // 3, 2 * n // 3, n],
    }
    files = {}
    for kind, bounds in cuts.items():
        for name, side in (("x", x), ("y", y)):
            where = folder / kind / name
            where.mkdir(parents=True)
            for number, (start, stop) in enumerate(pairwise(bounds)):
                np.save(where / f"{number:02}.npy", side[start:stop])
        files[kind] = (folder / kind / "x", folder / kind / "y")
    lists = {name: pa.array(list(side)) for name, side in (("x", x), ("y", y))}
    pq.write_table(pa.table(lists), folder / "both.parquet", row_group_size=100)
    pq.write_table(pa.table({"y": lists["y"]}), folder / "y.parquet")
    files["parquet"] = (folder / "both.parquet", None)
    files["mixed"] = (folder / "thirds" / "x", folder / "y.parquet")
    return {kind: load_embeddings(*given) for kind, given in files.items()}


def digest(planner, data, memory=None):
    """Of the rows and the batches, and of what the plan says of itself."""
    options = {"device": "cpu", "seed": 5, "memory": memory}
    if planner == "refine":
        made = refine(plan(data, planner="random", seed=5, batch_size=16), data, **options)
    else:
        made = plan(data, planner=planner, batch_size=16, **options, **AS_BATCHES.get(planner, {}))
    hashed = hashlib.sha256(made.rows.tobytes() + made.batch_offsets.tobytes())
    return hashed.hexdigest(), made.metadata


class LeastMemory:
    """`digest` with about the smallest budget that is not refused."""

    def __init__(self):
        self._least = 1e6

    def __call__(self, planner, data):
        size = self._least
        while True:
            try:
                made = digest(planner, data, resident_memory() + int(size))
            except ResourceError:
                size *= 1.25
            else:
                self._least = max(self._least, size / 2)  # other cuts take about as much
                return made


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name not in SLOW])
def test_one_digest(planner, rows, use_threads):
    given, least_memory = rows[MANY], LeastMemory()
    expected = digest(planner, given["whole"])
    for kind, threads in (("rows", 2), ("thirds", 8), ("parquet", 2)):
        use_threads(threads)
        assert digest(planner, given[kind]) == expected, (kind, threads)
    for kind, threads in (("mixed", 8), ("whole", 1)):
        use_threads(threads)
        assert least_memory(planner, given[kind]) == expected, (kind, threads)


@pytest.mark.parametrize("planner", [*PLANNERS, "refine"])
def test_one_digest_of_every_two(planner, rows, use_threads):
    """Of every kind of data, number of threads and memory, any two together."""
    given, least_memory = rows[FEW], LeastMemory()
    expected = digest(planner, given["whole"])
    memory = cycle((digest, least_memory))
    for (kind, threads), plan_with in zip(product(given, (1, 2, 8)), memory, strict=False):
        use_threads(threads)
        assert plan_with(planner, given[kind]) == expected, (kind, threads, plan_with)


@pytest.mark.parametrize("planner", [*PLANNERS, "refine"])
def test_float16_differs_in_the_fingerprint_alone(planner, rows):
    """From the same numbers in float32; a fingerprint depends on the dtype."""
    data = rows[FEW]["whole"]
    sides = (side.rows(0, FEW) for side in (data.x, data.y))
    half = Embeddings.from_arrays(*(side.astype(np.float16) for side in sides))
    (made, metadata), (expected, full) = digest(planner, half), digest(planner, data)
    assert made == expected
    assert metadata.fingerprint != full.fingerprint
    assert replace(metadata, fingerprint=full.fingerprint) == full
