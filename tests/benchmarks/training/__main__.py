"""``make bench-training``: train with plans made between epochs, and compare with shuffled batches.

All runs of a seed start from the same weights and see as many rows. Every difference is paired by
seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.training.plans import SETTINGS, SHUFFLED
from tests.benchmarks.training.report import markdown
from tests.benchmarks.training.runs import trained
from tests.benchmarks.training.setups import FULL, SETUPS, SMALL, Setup, Size

DEFAULT = "shuffled,gcbs,rwr,scb,partition"

Runs = list[dict[str, Any]]


def main() -> None:
    options = _options()
    runs: Runs = []
    if options.json and options.json.exists():
        runs = json.loads(options.json.read_text())
    for name in options.setups.split(","):
        _runs(name, options, runs)
        own = [run for run in runs if run["setup"] == name]
        print(f"\n{name}, {_size(name, options).rows:,} pairs\n\n{markdown(own)}")


def _runs(name: str, options: argparse.Namespace, runs: Runs) -> None:
    """Add the runs of a set-up that are missing, and write each at once: all take a while."""
    size, prepared = _size(name, options), None
    wanted = dict.fromkeys([(SHUFFLED, 1.0), *product(options.plans, options.rates)])
    for seed, (plan, rate) in product(options.seeds, wanted):
        key = {"setup": name, "plan": plan, "seed": seed, "rate": rate, "rows": size.rows,
               "small": options.small, "epochs": size.epochs}  # fmt: skip
        if any(key.items() <= run.items() for run in runs):
            continue
        prepared = prepared or SETUPS[name](size)
        runs.append({**_run(prepared, size, plan, seed, rate, options), **key})
        print(f"{name}, seed {seed}, {plan}, rate x {rate:g}: {runs[-1]['mrr']:.4f}",
              file=sys.stderr, flush=True)  # fmt: skip
        if options.json:
            part = options.json.with_suffix(".part")
            part.write_text(json.dumps(runs, indent=1) + "\n")
            part.rename(options.json)


def _run(
    prepared: Setup, size: Size, plan: str, seed: int, rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = trained(prepared, plan, epochs=size.epochs, rate=rate * size.rate, seed=seed,
                      folder=Path(folder), measured=options.figures)  # fmt: skip
    return run


def _size(name: str, options: argparse.Namespace) -> Size:
    size = (SMALL if options.small else FULL)[name]
    return replace(size, rows=options.rows or size.rows, epochs=options.epochs or size.epochs)


def numbers(text: str) -> list[int]:
    """Of an option such as 0,1,2."""
    return [int(word) for word in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.training", description=__doc__
    )
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2], help="such as 0,1,2")
    parser.add_argument("--setups", default="pretrained,scratch",
                        help=f"of {', '.join(SETUPS)}")  # fmt: skip
    parser.add_argument("--plans", default=DEFAULT, help=f"all, or of {', '.join(SETTINGS)}, or "
                        "arguments of batchplan, such as 'partition --neighbors 32'")  # fmt: skip
    parser.add_argument("--small", action="store_true", help="few pairs, short vectors")
    parser.add_argument("--rows", type=int, help="pairs to train on, instead of the set-up's own")
    parser.add_argument("--epochs", type=int, help="instead of the set-up's own")
    parser.add_argument("--rates", default="1", help="learning rates, as multiples of the set-up's")
    parser.add_argument("--figures", action="store_true", help="also measure every plan")
    parser.add_argument("--json", type=Path, help="keep every run here; what it has is not run")
    options = parser.parse_args()
    options.rates = [float(word) for word in options.rates.split(",")]
    chosen = SETTINGS if options.plans == "all" else options.plans.split(",")
    options.plans = list(chosen)
    return options


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # Adam's old moments get there, and cost ten times as much
    torch.set_num_threads(1)  # the products are small, and threads that wait for a busy core slow
    main()
