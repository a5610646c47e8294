"""``make test-wheel``: with NumPy alone, plans can be read, and the rest says what installs it.

Usage: python tests/numpy_alone.py FOLDER, with plan.npy, .npz, .jsonl, .txt and .parquet of 2,048
rows in batches of 64.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

import batchplan
from batchplan.training import PlanBatchSampler


def main(folder: Path) -> None:
    """Read the plans, and ask for more than that."""
    for kind in ("npy", "npz", "jsonl", "txt"):
        batches = list(PlanBatchSampler(folder / f"plan.{kind}", rank="all", world_size=1))
        assert sorted(row for batch in batches for row in batch) == [*range(2_048)], kind
        assert {len(batch) for batch in batches} == {64}, kind
    rows = np.eye(8, dtype=np.float32)
    asked = (
        ("torch", lambda: batchplan.evaluate(folder / "plan.npy", rows)),
        ("torch", lambda: batchplan.plan(rows, rows[::-1], batch_size=4)),
        ("pyarrow", lambda: batchplan.Plan.load(folder / "plan.parquet")),
    )
    for package, ask in asked:
        try:
            ask()
        except (batchplan.ResourceError, ImportError) as error:
            told = str(error)
        else:
            told = "nothing"
        assert told == f"{package}: is not installed; run pip install batchplanner", told
    command = [sys.executable, "-m", "batchplan", "plan", "x.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    told = done.returncode, done.stderr
    assert told == (4, "error: typer: is not installed; run pip install batchplanner\n"), told
    print("NumPy alone reads plans")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
