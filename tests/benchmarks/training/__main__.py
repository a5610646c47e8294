"""``make bench-training``: train with plans made between epochs, and compare with shuffled batches.

All runs of a seed start from the same weights and see as many rows. Every difference is paired by
seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.training.plans import SETTINGS, SHUFFLED
from tests.benchmarks.training.report import markdown
from tests.benchmarks.training.runs import trained
from tests.benchmarks.training.setups import SETUPS, setup

DEFAULT = "shuffled,gcbs,no guard,partition"


def main() -> None:
    options = _options()
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in options.setups.split(","):
        prepared = setup(name, options.rows)
        epochs = options.epochs or prepared.epochs
        runs = found[name] = {plan: [] for plan in options.plans}
        for seed, plan in itertools.product(range(options.seeds), options.plans):
            with tempfile.TemporaryDirectory() as folder:
                run = trained(prepared, plan, epochs=epochs, seed=seed, folder=Path(folder))
            runs[plan].append(run)
            print(f"{name}, seed {seed}, {plan}: {run['mrr']:.4f}", file=sys.stderr, flush=True)
            if options.json:  # each time: all of it takes a while
                options.json.write_text(json.dumps(found, indent=2) + "\n")
        print(f"\n{name}: {len(prepared.train.x):,} pairs, {epochs} epochs\n\n{markdown(runs)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.training", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each plan")
    parser.add_argument("--setups", default="pretrained,tuned",
                        help=f"of {', '.join(SETUPS)}")  # fmt: skip
    parser.add_argument("--plans", default=DEFAULT, help=f"all, or of {', '.join(SETTINGS)}, or "
                        "arguments of batchplan, such as 'partition --neighbors 32'")  # fmt: skip
    parser.add_argument("--rows", type=int, default=12_000, help="pairs to train on")
    parser.add_argument("--epochs", type=int, help="instead of the set-up's own")
    parser.add_argument("--json", type=Path, help="also write every run here")
    options = parser.parse_args()
    chosen = SETTINGS if options.plans == "all" else options.plans.split(",")
    options.plans = list(dict.fromkeys([SHUFFLED, *chosen]))
    return options


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # Adam's old moments get there, and cost ten times as much
    torch.set_num_threads(1)  # the products are small, and threads that wait for a busy core slow
    main()
