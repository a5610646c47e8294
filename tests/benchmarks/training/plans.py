"""What is compared, and how a plan is made: by the command line, as a pipeline would.

A setting is a name and the arguments of `batchplan` for each epoch; a new one is one line.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from batchplan.training import PlanBatchSampler

SHUFFLED = "shuffled"  # what all others are compared with
WARM_UP = "after"  # "after 1 gcbs": shuffled for one epoch, then gcbs

SETTINGS = {
    SHUFFLED: "shuffled",
    "gcbs": "gcbs",
    "rwr": "rwr",
    "scb": "scb",
    "no guard": "partition --no-guard",
    "partition": "partition",
    "0.7": "partition --max-similarity 0.7",
    "0.85": "partition --max-similarity 0.85",
    "0.9": "partition --max-similarity 0.9",
    "0.95": "partition --max-similarity 0.95",
    "1.0": "partition --max-similarity 1.0",
    "margin": "partition --margin 0.05",
    "random 0.25": "partition --random-fraction 0.25",
    "random 0.5": "partition --random-fraction 0.5",
    "cluster 8": "partition --cluster-size 8",
    "cluster 16": "partition --cluster-size 16",
    "cluster 32": "partition --cluster-size 32",
    "window": "partition --rank-window 16:48",
    "order": "partition --batch-order shuffled",
    "warm-up 1": "after 1 partition",
    "warm-up 2": "after 2 partition",
}


def arguments(setting: str, epoch: int) -> list[str]:
    """The arguments of an epoch of a setting, which is a name or is written out."""
    words = SETTINGS.get(setting, setting).split()
    if words[0] == WARM_UP:
        words = words[2:] if epoch >= int(words[1]) else [SHUFFLED]
    return words + (["--epoch", str(epoch)] if words[0] == SHUFFLED else [])


def write(path: Path, x: Tensor, y: Tensor, labels: pa.Table) -> None:
    """Embeddings as float16 with their labels, in one Parquet file."""
    table = labels
    for name, side in (("x", x), ("y", y)):
        flat = pa.array(side.half().numpy().ravel())
        column = pa.FixedSizeListArray.from_arrays(flat, side.shape[1])
        table = table.append_column(name, column)
    pq.write_table(table, path)


def plan(
    words: Sequence[str], embeddings: Path, *, batch_size: int, seed: int
) -> tuple[PlanBatchSampler, float]:
    """The batches, and the seconds of the command with the start of Python."""
    made = embeddings.with_suffix(".npy")
    command = [sys.executable, "-m", "batchplan", *words, str(embeddings), "-o", str(made)]
    command += ["--batch-size", str(batch_size), "--seed", str(seed), "--force", "--quiet"]
    start = time.perf_counter()
    run = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if run.returncode:
        raise RuntimeError(f"{' '.join(words)}: {run.stderr.strip()}")
    return PlanBatchSampler(made), seconds
