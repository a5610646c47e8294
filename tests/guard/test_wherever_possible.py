"""No known answers meet wherever that is possible: random graphs so small that all ways to fill the
batches can be tried."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchplan
from batchplan import Candidates

from .test_known import Graph, collisions

MIXED = {"source_column": "s", "source_mix": "proportional"}
WAYS = [
    ("random", {"guard": True}),
    ("random", {"guard": True, "max_score": 0.5}),
    ("random", {"guard": True, "tail": "pad", "world_size": 2}),
    ("random", {"guard": True, "world_size": 2, "scope": "global", "tail": "drop"}),
    ("shuffled", {"guard": True, "epoch": 2, "refine": 1}),
    ("partition", {}),
    ("partition", {"max_score": -0.3, "tail": "pad"}),
    ("partition", {"mega_batches": 2}),
    ("partition", {"mega_batches": 2, "tail": "pad"}),
    ("partition", {"source_column": "s"}),
    ("partition", MIXED),
    ("partition", {**MIXED, "tail": "drop"}),
    ("partition", {"lists": 6}),
    ("partition", {"lists": 3, "tail": "pad"}),
    ("random", {"lists": 6, "guard": True}),
    ("gcbs", {"tail": "pad"}),
    ("rwr", {"coverage": "partition", "candidate_rows": 5}),
    ("chain", {"space_rows": 8}),
    ("refine", {}),
]


def lists(graph, length):
    """Candidates: the most similar documents of each row."""
    similarities = graph.x @ graph.y.T
    own = similarities.diagonal().copy()
    np.fill_diagonal(similarities, -np.inf)
    ids = np.argsort(-similarities, axis=1)[:, :length]
    return Candidates.from_lists(ids, np.take_along_axis(similarities, ids, 1), own)


def separable(apart, spaces, kinds):
    """Whether items, apart bool (n, n), fit into batches with this space for each kind."""
    masks = [sum(1 << int(j) for j in np.flatnonzero(row)) for row in apart]
    order = sorted(range(len(masks)), key=lambda item: -masks[item].bit_count())

    def fit(at, batches):
        if at == len(order):
            return True
        item = order[at]
        for own in set(batches):
            members, *left = own
            if left[kinds[item]] and not members & masks[item]:
                left[kinds[item]] -= 1
                others = list(batches)
                others[others.index(own)] = (members | 1 << item, *left)
                if fit(at + 1, others):
                    return True
        return False

    return fit(0, [(0, *own) for own in spaces])


@pytest.mark.parametrize(("planner", "options"), WAYS, ids=str)
def test_no_known_answers_meet_wherever_that_is_possible(planner, options, tmp_path):
    """By equal vectors, or by ids with a list; also with mined negatives."""
    options, met = {"batch_size": 0, "device": "cpu", **options}, 0
    length = options.pop("lists", 0)
    pairs_alone = bool(length) or planner in ("gcbs", "rwr", "chain")
    for seed in (0, 1, 3, 6, 8, 11, 12, 13, 15, 17):
        rng = np.random.default_rng(seed)
        n, size = rng.integers((8, 2), (13, 5))
        most = rng.integers(n * 2 // 3, n + 1 + n * (seed % 3) // 2, 2)
        mined = seed % 4 == int(pairs_alone)  # planners of pairs know them by ids
        negatives, more = int(mined), rng.integers(0, 4)
        graph = Graph(seed, int(n), most, negatives, more)
        n, sources = len(graph.anchors), np.append([0, 1], rng.integers(0, 2, n))[:n]
        own = options | {
            "seed": seed,
            "batch_size": max(2, int(size) // options.get("world_size", 1)),
        }
        if seed % 2 or length or "source_column" in options:
            own |= graph.table(path := tmp_path / "ids.parquet")
            pq.write_table(pq.read_table(path).append_column("s", pa.array(sources)), path)
        else:
            graph.more = graph.more[:, :0]
        data = {"x": graph.x, "y": graph.y} if pairs_alone else graph.arrays()
        data = {"x": lists(graph, length)} if length else data
        if planner == "refine":
            made = batchplan.plan(**data, planner="random", batch_size=own.pop("batch_size"))
            made = batchplan.refine(made, **data, **own)
        else:
            made = batchplan.plan(**data, planner=planner, **own)
        known, rows = graph.known() | graph.known().T, made.rows
        if collisions(known, rows, made.batch_offsets):
            met += 1
            twice = (rows[:, None] == rows) & ~np.eye(len(rows), dtype=bool)
            kinds = sources[rows] if "source_column" in options else np.zeros(len(rows), int)
            spaces = [
                np.bincount(own, minlength=2) for own in np.split(kinds, made.batch_offsets[1:-1])
            ]
            assert not separable(known[rows[:, None], rows] | twice, spaces, kinds), seed
    assert 0 < met < 10
