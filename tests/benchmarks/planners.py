"""Every planner on the same data: how hard its batches are, how many negatives are false, its cost.

A setting is one command line, in a process of its own. One that takes longer than `LIMIT` is
stopped and listed without numbers. Planners that join the registry join the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from batchplan import Embeddings, Plan
from batchplan.data import load_labels
from batchplan.planners import PLANNERS
from batchplan.typing import Int64Array
from tests.benchmarks.quality import load

LIMIT = 300  # seconds of one command
BATCH_SIZE, TEMPERATURE = 64, 0.05
LABELS = "group", "source"  # columns, if the data has them

# Options beside the defaults, which are always measured; {most} is N - 1.
SETTINGS = {
    "rwr": [
        "--restart 0.05",
        "--restart 0.5",
        "--candidate-rows 500",
        "--candidate-rows {most}",
        "--walk rw",
        "--walk bfs",
        "--neighbors 500 --restart 0.7",
        "--coverage complete",
        "--coverage complete --neighbors 500 --restart 0.7",
        "--coverage partition",
        "--coverage partition --neighbors 500 --restart 0.7",
    ],
    **{key: [f"--random-fraction {share}" for share in (0.3, 0.5, 0.7)] for key in ["bcs", "scb"]},
    "osgd": ["--pool 1024"],
    "random": ["--relative-margin 0.1"],
    "chain": ["--space-rows {most}", "--hardness 0.99", "--relative-margin 0.1"],
}


def measure(data: Path) -> dict[str, object]:
    """Every planner on real pairs, batch 64, temperature 0.05."""
    embeddings = load(data)
    inputs, labels = sources(data, embeddings)
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for command in settings(embeddings.num_rows):
            name, row = " ".join(command), compared(command, inputs, labels, Path(folder))
            found[name] = row
            print(f"  {name}: {row['loss']}", file=sys.stderr, flush=True)  # minutes, in all
    return found


def sources(data: Path, embeddings: Embeddings) -> tuple[list[str], dict[str, Int64Array]]:
    """The arguments that name the embeddings, and their labels by column."""
    table, inputs, there = data / "pairs.parquet", [str(data / "pairs.parquet")], []
    if (data / "queries.npy").exists():
        inputs = [str(data / "queries.npy"), "--pair", str(data / "codes.npy")]
        table = data / "rows.parquet"
    if table.exists():
        there = pq.read_schema(table).names
    return inputs, {one: load_labels(one, embeddings, table) for one in LABELS if one in there}


def settings(num_rows: int) -> Iterator[list[str]]:
    """The command lines, without files and without what all of them share."""
    for name in PLANNERS:
        # Without it these make a table of negatives, which is no plan.
        plain = "--as-batches" if "as_batches" in _options(name) else ""
        for options in [plain, *SETTINGS.get(name, [])]:
            yield [name, *options.format(most=num_rows - 1).split()]


def compared(
    command: Sequence[str], inputs: Sequence[str], labels: dict[str, Int64Array], folder: Path
) -> dict[str, object]:
    """Plan and evaluate: a row of the table, or why there is none."""
    plan = str(folder / "plan.parquet")
    options = ["--batch-size", str(BATCH_SIZE), "-o", plan, "--force"]
    tau = ["--temperature", str(TEMPERATURE)]
    if "temperature" in _options(command[0]):
        options += tau
    try:
        summary = _run([*command, *inputs, *options])
        found = _run(["evaluate", plan, *inputs, *tau])
    except subprocess.TimeoutExpired:
        return {"loss": f"stopped after {LIMIT} s"}
    except subprocess.CalledProcessError as error:
        return {"loss": error.stderr.strip()}
    row = {
        "loss": found["loss_train"],
        "gap reduction": found["gap_reduction"],
        "oracle share": found["oracle_share"],
    }
    made = Plan.load(plan)
    batches = np.repeat(np.arange(made.num_batches), np.diff(made.batch_offsets))
    for column, codes in labels.items():
        share = row[f"false by {column}"] = of_one_label(codes[made.rows], batches)
        random = of_one_label(codes, np.zeros_like(codes))
        row[f"{column} / random"] = share / random if random else None
    return row | {
        "rows seen": found["coverage"]["share_seen"],
        "seconds": summary["seconds_total"],
        "peak MB": summary["peak_memory_bytes"] / 1e6,
    }


def of_one_label(codes: Int64Array, batches: Int64Array) -> float:
    """The share of the pairs of a batch with the same label; -1 is none."""
    kinds = (batches * (codes.max() + 1) + codes)[codes >= 0]
    same, pairs = (int(counts @ (counts - 1)) for counts in map(np.bincount, (kinds, batches)))
    return same / pairs


def _options(planner: str) -> set[str]:
    return {field.name for field in fields(PLANNERS[planner].options)}


def _run(command: Sequence[str]) -> dict[str, Any]:
    line = [sys.executable, "-m", "batchplan", *command, "--json"]
    run = subprocess.run(line, check=True, capture_output=True, text=True, timeout=LIMIT)
    return json.loads(run.stdout)


def markdown(rows: dict[str, dict[str, object]]) -> str:
    """The rows as a Markdown table; the columns are those of the fullest row."""
    columns = list(max(rows.values(), key=len))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for name, row in rows.items():
        lines.append([f"`{name}`", *(_cell(column, row.get(column, "")) for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(column: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if column in ("gap reduction", "oracle share", "rows seen") or column.startswith("false"):
        return f"{value:.3%}" if value < 0.01 and column.startswith("false") else f"{value:.1%}"
    return {"loss": f"{value:.4f}", "seconds": f"{value:.1f}", "peak MB": f"{value:.0f}"}.get(
        column, f"{value:.2f}"
    )
