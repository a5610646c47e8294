"""``make bench-training``: train with plans made between epochs, and compare with shuffled batches.

All runs of a seed start from the same weights and see as many rows. Every difference is paired by
seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.training.plans import SETTINGS, SHUFFLED
from tests.benchmarks.training.report import markdown
from tests.benchmarks.training.runs import trained
from tests.benchmarks.training.setups import SETUPS, Setup, setup

DEFAULT = "shuffled,gcbs,rwr,scb,partition"


def main() -> None:
    options = _options()
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in options.setups.split(","):
        prepared = setup(name, options.rows)
        runs = found[name] = {}
        epochs = options.epochs or prepared.epochs
        for seed in range(options.seeds):
            for plan in options.plans:
                _run(runs, prepared, plan, plan, epochs, seed)
                _report(found, options.json)
            for plan in options.equal_time:
                longer = _epochs_in_time(runs[plan][-1], runs[SHUFFLED][-1])
                _run(runs, prepared, SHUFFLED, f"{SHUFFLED}, time of {plan}", longer, seed)
                _report(found, options.json)
        print(f"\n{name}: {len(prepared.train.x):,} pairs, {epochs} epochs\n\n{markdown(runs)}")


def _run(
    runs: dict[str, list[dict[str, Any]]],
    prepared: Setup,
    plan: str,
    name: str,
    epochs: int,
    seed: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = trained(prepared, plan, epochs=epochs, seed=seed, folder=Path(folder))
    runs.setdefault(name, []).append(run)
    print(f"seed {seed}, {epochs} epochs, {name}: {run['mrr']:.4f}", file=sys.stderr, flush=True)


def _epochs_in_time(run: dict[str, Any], shuffled: dict[str, Any]) -> int:
    """Epochs of training alone that take as long as a run with its dumps and plans."""
    epoch = shuffled["seconds"]["train"] / len(shuffled["scores"])
    return round(sum(run["seconds"].values()) / epoch)


def _report(found: dict[str, Any], path: Path | None) -> None:
    if path:  # each time: all of it takes a while
        path.write_text(json.dumps(found, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.training", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each plan")
    parser.add_argument("--setups", default="pretrained,scratch",
                        help=f"of {', '.join(SETUPS)}")  # fmt: skip
    parser.add_argument("--plans", default=DEFAULT, help=f"all, or of {', '.join(SETTINGS)}, or "
                        "arguments of batchplan, such as 'partition --neighbors 32'")  # fmt: skip
    parser.add_argument("--rows", type=int, default=17_500, help="pairs to train on")
    parser.add_argument("--epochs", type=int, help="instead of the set-up's own")
    parser.add_argument("--equal-time", default="", help="plans whose whole time shuffled batches "
                        "get, too, for more epochs")  # fmt: skip
    parser.add_argument("--json", type=Path, help="also write every run here")
    options = parser.parse_args()
    chosen = SETTINGS if options.plans == "all" else options.plans.split(",")
    options.equal_time = [name for name in options.equal_time.split(",") if name]
    options.plans = list(dict.fromkeys([SHUFFLED, *chosen, *options.equal_time]))
    return options


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # Adam's old moments get there, and cost ten times as much
    torch.set_num_threads(1)  # the products are small, and threads that wait for a busy core slow
    main()
