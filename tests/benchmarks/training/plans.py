"""What is compared, and how a plan is made: by the command line, but in this process, so that a
short run costs no imports.

A setting is a name and the arguments of `batchplan` for each epoch; a new one is one line.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from batchplan.cli.app import app
from batchplan.training import PlanBatchSampler

SHUFFLED = "shuffled"  # what all others are compared with
WARM_UP = "after"  # "after 1 gcbs": shuffled for one epoch, then gcbs
BATCH, BATCH_SIZE = "--batch-size", 64
START = "{start}"  # the embeddings before the first epoch
# "{0.5:0}": from the first epoch to the last; "{8:1}": the same in whole numbers
LINE = re.compile(r"\{([\d.]+):([\d.]+)\}")

SETTINGS = {
    SHUFFLED: "shuffled",
    "gcbs": "gcbs",
    "rwr": "rwr",
    "scb": "scb",
    "partition": "partition",
    "no guard": "partition --no-guard",
    "any price": "partition --guard-penalty inf",
    "price 1": "partition --guard-penalty 1",
    "order": "partition --batch-order planned",
    "share 0.7": "partition --relative-margin 0.3",
    "share 0.8": "partition --relative-margin 0.2",
    "share 1": "partition --relative-margin 0",
    "absolute_margin": "partition --absolute-margin 0.05",
    "mega 1": "partition --mega-batches 1",
    "mega 3": "partition --mega-batches 3",
    "mega 4": "partition --mega-batches 4",
    "mega 8": "partition --mega-batches 8",
    "unrefined": "partition --refine 0",
    "warm-up 1": "after 1 partition",
    "warm-up 2": "after 2 partition",
    "rwr schedule": "rwr --restart 0.2:0.05 --progress {0.0:1.0}",
}


def written_out(setting: str) -> str:
    """The arguments that a name stands for."""
    return SETTINGS.get(setting, setting)


def batch_size(setting: str) -> int:
    """The rows of its batches."""
    words = written_out(setting).split()
    return int(words[words.index(BATCH) + 1]) if BATCH in words else BATCH_SIZE


def arguments(setting: str, epoch: int, epochs: int, start: Path | None = None) -> list[str]:
    """The arguments of an epoch of a setting, which is a name or is written out."""

    def between(found: re.Match[str]) -> str:
        first, final = float(found[1]), float(found[2])
        value = first + (final - first) * epoch / max(epochs - 1, 1)
        return f"{value:.3g}" if "." in found[0] else f"{round(value)}"

    words = written_out(setting).split()
    if words[0] == WARM_UP:
        words = words[2:] if epoch >= int(words[1]) else [SHUFFLED]
    words = [str(start) if word == START else LINE.sub(between, word) for word in words]
    if BATCH not in words:
        words += [BATCH, str(BATCH_SIZE)]
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
    words: Sequence[str], embeddings: Path, made: Path, seed: int
) -> tuple[PlanBatchSampler, float]:
    """The batches, which are also in the file `made`, and the seconds of the command."""
    command = [*words, str(embeddings), "-o", str(made), "--seed", str(seed), "--force", "--quiet"]
    start = time.perf_counter()
    app(command, standalone_mode=False)
    return PlanBatchSampler(made), time.perf_counter() - start
