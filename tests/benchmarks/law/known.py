"""``python -m tests.benchmarks.law.known``: known answers as negatives, and what they cost a model.

Makes the runs that are missing, and prints the table of docs/guards.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.benchmarks.law.table import USUAL, Grid, joined, told

RESULTS = Path(__file__).parent / "known.jsonl"
DATA = "translations", "dependencies"
NAMES = {
    "shuffled": "random",
    "no-duplicates": "`NO_DUPLICATES`",
    "no-known": "`NoKnownAnswers`",
    "planned-equal": "planned, equal texts in different batches",
    "planned": "planned, known answers in different batches",
}
BASES = {"shuffled": [*NAMES][1:], "planned-equal": ["planned"]}  # and what is compared with each
COUNTS = "known", "negatives"
SEEDS, BATCH_SIZE, EPOCHS = 8, 128, 1.0


def table(grid: Grid) -> str:
    """For each line: the known answers among the negatives of a training, the score, and the gains
    over random batches and over plans without known answers."""
    lines = [["Data", "Batches", "Known answers as negatives", "nDCG@10", "over random",
              "over plans without known answers"], ["---"] * 6]  # fmt: skip
    for data in DATA:
        for rows in grid.values("rows", data=data):
            place = {"data": data, "rows": rows, **USUAL, "batch_size": BATCH_SIZE,
                     "epochs": EPOCHS}  # fmt: skip
            for line, name in NAMES.items():
                if not (runs := grid.of(place, line).values()):
                    continue
                known, negatives = (sum(run[kind] for run in runs) for kind in COUNTS)
                count = f"{known / len(runs):,.0f} ({100 * known / negatives:.3f}%)"
                gains = [told(grid.gain(place, line, base), SEEDS) if line in compared else ""
                         for base, compared in BASES.items()]  # fmt: skip
                lines.append([data, name, count, f"{np.mean([run['test'] for run in runs]):.2f}",
                              *gains])  # fmt: skip
    return joined(lines)


def main() -> None:
    from tests.benchmarks.law.__main__ import main as bench

    sys.argv[1:] = [
        "--data", *DATA, "--rows", str(10**9), "--batch-sizes", str(BATCH_SIZE),
        "--epochs", str(EPOCHS), "--lines", *NAMES, "--seeds", *map(str, range(SEEDS)),
        "--results", str(RESULTS),
    ]  # fmt: skip
    bench()
    print(table(Grid(RESULTS)))


if __name__ == "__main__":
    main()
