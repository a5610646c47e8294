"""BatchSampler: Sampling Mini-Batches for Contrastive Learning (KDD 2023).

The walks are sampled as the paper does, each batch on its own, without a guard. How hard a batch is
and how many of its negatives are false is measured on fixed embeddings.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import batchplan
from batchplan.data.labels import load_labels
from batchplan.planners.papers.rwr.proximity import proximity_graph
from batchplan.runtime import Runtime
from tests.benchmarks.quality import load
from tests.benchmarks.reproductions.batches import BATCH_SIZE, random_batches, stacked, unit_rows
from tests.benchmarks.reproductions.claims import Claim, Effort, Found

TITLE = "BatchSampler"
LABELS = "source"
NEIGHBORS, CANDIDATES, RESTART = 100, 1000, 0.2
RESTARTS = (0.1, 0.3, 0.5, 0.7)
SIZES = (500, 1000, 2000, 4000, 6000)  # M of table 4
DEFAULT, KNN, KNN_GRAPH, UNIFORM = "rwr", "knn", "knn graph", "uniform"
SIMILARITY, FALSE = "similarity", "false"


def measure(data: Path, effort: Effort) -> dict[str, Any]:
    """Mean similarity and share of false negatives of each sampler, for each seed."""
    embeddings = load(data)
    table = data / "rows.parquet"
    labels = load_labels(LABELS, embeddings, table if table.exists() else None)
    x, y = unit_rows(embeddings)
    uniform = []
    rounds = math.ceil(effort.batches * BATCH_SIZE / len(x))
    for seed in range(effort.seeds):
        draw = np.random.default_rng(seed)
        batches = np.concatenate([random_batches(len(x), draw) for _ in range(rounds)])
        uniform.append(negatives(x, y, labels, batches))
    found = {UNIFORM: by_kind(uniform)}
    for name, options in samplers(embeddings.num_rows).items():
        seen = []
        for seed in range(effort.seeds):
            plans = [
                batchplan.plan(
                    embeddings, planner="rwr", batch_size=BATCH_SIZE, coverage="independent",
                    guard=False, seed=seed * rounds + part, device="cpu", **options,
                )
                for part in range(rounds)
            ]  # fmt: skip
            batches = np.concatenate([stacked(plan) for plan in plans])[: effort.batches]
            seen.append(negatives(x, y, labels, batches))
        found[name] = by_kind(seen)
    seen = []
    for seed in range(effort.seeds):
        graph = proximity_graph(embeddings, CANDIDATES, NEIGHBORS, Runtime("cpu", seed=seed))
        draw = np.random.default_rng(seed)
        batches = np.stack([depth_first(graph.indices, draw) for _ in range(effort.batches)])
        seen.append(negatives(x, y, labels, batches))
    return found | {"dfs": by_kind(seen)}


def depth_first(neighbors: NDArray[np.int64], draw: np.random.Generator) -> list[int]:
    """A batch of a depth-first search: from each row to a random neighbour that the batch does not
    have, and back if there is none; from another random row if all were visited."""
    batch, path = dict[int, None](), list[int]()
    while len(batch) < BATCH_SIZE:
        if not path:
            path.append(int(draw.integers(len(neighbors))))
            batch[path[-1]] = None
            continue
        ways = [row for row in neighbors[path[-1]].tolist() if row >= 0 and row not in batch]
        if ways:
            path.append(ways[draw.integers(len(ways))])
            batch[path[-1]] = None
        else:
            path.pop()
    return list(batch)


def by_kind(seen: list[dict[str, float]]) -> dict[str, list[float]]:
    return {kind: [one[kind] for one in seen] for kind in (SIMILARITY, FALSE)}


def samplers(num_rows: int) -> dict[str, dict[str, Any]]:
    """Options of `rwr` by name; sizes that the data does not have are cut to all other rows."""
    most = num_rows - 1
    default = {"candidate_rows": CANDIDATES, "neighbors": NEIGHBORS, "restart": RESTART}
    sizes = dict.fromkeys(min(size, most) for size in SIZES)
    return {
        DEFAULT: default,
        # The nearest rows of one: breadth first in the graph of the B - 1 nearest (section 4.3).
        KNN: {"candidate_rows": most, "neighbors": BATCH_SIZE - 1, "walk": "bfs"},
        KNN_GRAPH: default | {"candidate_rows": most},
        **{walk: default | {"walk": walk} for walk in ("bfs", "rw")},
        **{f"restart {restart}": default | {"restart": restart} for restart in RESTARTS},
        **{f"candidates {size}": default | {"candidate_rows": size} for size in sizes},
    }


def negatives(
    x: Tensor, y: Tensor, labels: NDArray[np.int64], batches: NDArray[np.int64]
) -> dict[str, float]:
    """Mean similarity of the negatives of all batches, and the share with their anchor's label."""
    index = torch.from_numpy(batches)
    others = ~torch.eye(batches.shape[1], dtype=torch.bool)
    similar = (x[index] @ y[index].transpose(1, 2))[:, others]
    same = (labels[batches][:, :, None] == labels[batches][:, None, :])[:, others.numpy()]
    return {SIMILARITY: float(similar.double().mean()), FALSE: float(same.mean())}


def above(found: dict[str, Any], more: str, less: str, kind: str) -> bool:
    """Whether one mean is above another by more than two standard errors of the difference."""
    samples = [found[name][kind] for name in (more, less)]
    error = math.sqrt(sum(statistics.variance(one) / len(one) for one in samples))
    return statistics.mean(samples[0]) - statistics.mean(samples[1]) > 2 * error


def mean(found: dict[str, Any], name: str, kind: str) -> float:
    return statistics.mean(found[name][kind])


def shown(found: dict[str, Any], names: list[str], kind: str) -> str:
    form = "{:.1%}" if kind == FALSE else "{:.3f}"
    return ", ".join(form.format(mean(found, name, kind)) for name in names)


def between(found: dict[str, Any]) -> Found:
    names = [UNIFORM, DEFAULT, KNN]
    return Found(
        f"uniform, `rwr`, kNN: cosine {shown(found, names, SIMILARITY)}",
        [above(found, DEFAULT, UNIFORM, SIMILARITY), above(found, KNN, DEFAULT, SIMILARITY)],
    )


def false_between(found: dict[str, Any]) -> Found:
    low, ours, high = (mean(found, name, FALSE) for name in (UNIFORM, DEFAULT, KNN))
    return Found(
        f"uniform, `rwr`, kNN: {shown(found, [UNIFORM, DEFAULT, KNN], FALSE)}",
        [
            above(found, KNN, DEFAULT, FALSE),
            above(found, DEFAULT, UNIFORM, FALSE),
            ours - low < high - ours,
        ],
    )


def rises(found: dict[str, Any], names: list[str], what: str) -> Found:
    """Both kinds from the first to the last, beyond the noise, and at each step."""
    met = []
    for kind in (SIMILARITY, FALSE):
        met.append(above(found, names[-1], names[0], kind))
        means = [mean(found, name, kind) for name in names]
        met.append(means == sorted(means))
    similar, false = (shown(found, names, kind) for kind in (SIMILARITY, FALSE))
    return Found(f"{what}: cosine {similar}; false {false}", met)


def restarts(found: dict[str, Any]) -> Found:
    return rises(found, [f"restart {one}" for one in RESTARTS], ", ".join(map(str, RESTARTS)))


def candidates(found: dict[str, Any]) -> Found:
    names = [name for name in found if name.startswith("candidates ")]
    return rises(found, names, "M = " + ", ".join(f"{int(name.split()[1]):,}" for name in names))


def breadth(found: dict[str, Any]) -> Found:
    names = ["bfs", "rwr", "rw"]
    met = [above(found, "bfs", other, kind) for kind in (SIMILARITY, FALSE) for other in names[1:]]
    return Found(
        f"`bfs`, `rwr`, `rw`: cosine {shown(found, names, SIMILARITY)}; false "
        f"{shown(found, names, FALSE)}",
        met,
    )


def milder(found: dict[str, Any]) -> Found:
    parts = {
        (walk, kind): above(found, "rwr", walk, kind)
        for walk in ("dfs", "rw")
        for kind in (SIMILARITY, FALSE)
    }
    told = [f"`{walk}` by {'cosine' if kind == SIMILARITY else 'false negatives'}"
            for (walk, kind), one in parts.items() if one]  # fmt: skip
    return Found(
        f"below `rwr` beyond the noise: {', '.join(told) or 'neither'}; `dfs`: cosine "
        f"{shown(found, ['dfs'], SIMILARITY)}, false {shown(found, ['dfs'], FALSE)}",
        list(parts.values()),
    )


def graphs(found: dict[str, Any]) -> Found:
    ratio = mean(found, DEFAULT, FALSE) / mean(found, KNN_GRAPH, FALSE)
    return Found(
        f"{shown(found, [DEFAULT, KNN_GRAPH], FALSE)} (uniform {shown(found, [UNIFORM], FALSE)}): "
        f"{ratio:.2f} times",
        [above(found, KNN_GRAPH, DEFAULT, FALSE), ratio <= 13 / 22],
    )


CLAIMS = [
    Claim(
        "Figure 4, section 5.2",
        "pairs in a batch are more similar than in uniform batches, less than in kNN batches",
        between,
    ),
    Claim(
        "Figure 4, section 5.2",
        "kNN batches have many more false negatives than uniform ones, BatchSampler few more "
        "(here: nearer to uniform)",
        false_between,
    ),
    Claim(
        "Figure 5, section 5.3",
        "a restart probability from 0.1 to 0.7 makes pairs more similar and more negatives false",
        restarts,
    ),
    Claim(
        "Table 4, section 5.3",
        "a larger M makes similar pairs and false negatives likelier",
        candidates,
    ),
    Claim(
        "Figure 6, section 5.5",
        "of the walks, BFS has the most similar pairs and many more false negatives",
        breadth,
    ),
    Claim(
        "Figure 6, section 5.5",
        "DFS and RW have slightly fewer false negatives than RWR, and milder batches",
        milder,
    ),
    Claim(
        "Figure 7, section 5.5",
        "13% of the negatives are false with a proximity graph, over 22% with a kNN graph "
        "(trained CIFAR10): 0.59 times",
        graphs,
    ),
]
