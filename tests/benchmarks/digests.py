"""``python -m tests.benchmarks.digests``: a digest of every planner's plan and of its evaluation.

A refactoring must not change what users get. Run this in a worktree of the version before and in
the new one, on the same machine, and compare the lines. They may differ between processors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import batchplan
from batchplan.planners import PLANNERS

GROUPS: dict[str, Any] = {"group_column": "group"}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "random": [
        {},
        {"tail": "drop", "batch_order": "shuffled"},
        {"refine": 1, "batch_size": 100},
        {"guard": True},
        {"relative_margin": 0.05, **GROUPS},
    ],
    "shuffled": [{"epoch": 2}],
    "gcbs": [
        {},
        {"neighbors": 8, "reverse": False, "tail": "pad", "batch_size": 100},
        {"relative_margin": 0.05, "refine": 2, **GROUPS},
        {"absolute_margin": 0.05, "world_size": 3, "scope": "global", "batch_size": 32},
    ],
    "partition": [
        {},
        {"mega_batches": 1, "guard": False},
        {"absolute_margin": 0.05, "guard_penalty": 1.0, "batch_order": "planned"},
        {"source_column": "source"},
        {"source_column": "source", "source_mix": "proportional", "tail": "drop"},
        {"world_size": 4, "scope": "global", "batch_size": 16, **GROUPS},
        {"similarity": "dot", "neighbors": 8, "refine": 2, "temperature": 0.1},
    ],
    "rwr": [
        {},
        {"coverage": "independent", "walk": "bfs"},
        {"coverage": "complete", "batch_size": 100},
        {
            "coverage": "partition",
            "relative_margin": 0.05,
            "refine": 1,
            "restart": "0.3:0.1",
            "progress": 0.5,
        },
        {"coverage": "partition", "batch_order": "shuffled", "candidate_rows": 300},
    ],
    "bcs": [{}, {"batch_size": 100, "refine": 1}, {"random_fraction": 0.5}],
    "scb": [{}, {"refine": 1}, {"random_fraction": 0.5}],
    "osgd": [{}, {"pool": 8, "keep": 2}],
    "chain": [{}, {"space_rows": 300, "hardness": 0.99, "relative_margin": 0.05, **GROUPS}],
    "b3": [{}, {"skip_nearest": 5, "neighbors": 20, "cluster_size": 16}],
    "knn": [{}, {"neighbors": 64, "refine": 1}],
    "cluster": [{}, {"iterations": 3, "refine": 1, "similarity": "dot"}],
    "hardneg": [{}, {"as_batches": True}, {"as_batches": True, **GROUPS}],
    "scns": [
        {},
        {"per_row": 3, **GROUPS},
        {"level": "class", "label_column": "group", "top_k": 20, "per_row": 4},
        {"as_batches": True, "per_row": 3},
        {"as_batches": True, "level": "class", "label_column": "group", "per_row": 3},
    ],
}
REFINED: list[dict[str, Any]] = [{}, {"passes": 2, "relative_margin": 0.05, **GROUPS}]
EVALUATED: list[dict[str, Any]] = [
    {},
    {"relative_margin": 0.05},
    {"absolute_margin": 0.05, "similarity": "dot", "temperature": 0.1},
]


def digest(*parts: object) -> str:
    """16 hexadecimal digits of arrays, numbers, text, and lists and mappings of these."""
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(str((part.dtype, part.shape)).encode() + part.tobytes())
        else:
            found.update(json.dumps(part, sort_keys=True).encode())
    return found.hexdigest()


def lines(data: Path, evaluations: bool) -> Iterator[str]:
    """One line for each setting."""

    def call(function: Any, *given: Any, **options: Any) -> Any:
        return function(*given, seed=3, device="cpu", **options)

    paired = batchplan.load_embeddings(str(data / "pairs.parquet"))
    rng = np.random.default_rng(0)
    alone = batchplan.Embeddings.from_arrays(rng.standard_normal((999, 24)).astype(np.float32))
    for name in PLANNERS:
        for options in SETTINGS[name]:
            table = name in ("scns", "hardneg") and "as_batches" not in options
            planned = call(
                batchplan.mine_negatives if table else batchplan.plan,
                paired,
                planner=name,
                **options,
            )
            what = f"{name} {json.dumps(options)}"
            if table:
                yield f"{what}: {digest(planned.anchors, planned.negatives)}"
                continue
            made = digest(planned.rows, planned.batch_offsets)
            yield f"{what}: {made} {digest(planned.metadata.metrics)}"
            for settings in EVALUATED * (evaluations and what in ("random {}", "partition {}")):
                found = call(batchplan.evaluate, planned, paired, **settings).to_dict()
                yield f"  evaluate {json.dumps(settings)}: {digest(found)}"
        if not any("as_batches" in options for options in SETTINGS[name]):
            planned = call(batchplan.plan, alone, planner=name, batch_size=32)
            made = digest(planned.rows, planned.batch_offsets, planned.metadata.metrics)
            yield f"{name}, one matrix: {made}"
    planned = call(batchplan.plan, paired, planner="random")
    for options in REFINED:
        made = call(batchplan.refine, planned, paired, **options)
        yield f"refine {json.dumps(options)}: {digest(made.rows, made.metadata.metrics)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.digests", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("sample_data"), help="folder of pairs")
    parser.add_argument("--plans", action="store_true", help="plans only, no evaluations")
    options = parser.parse_args()
    for line in lines(options.data, not options.plans):
        print(line, flush=True)


if __name__ == "__main__":
    main()
