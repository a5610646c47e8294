"""``python -m tests.benchmarks.training.freshness``: what plans from older vectors cost in quality.

Trains each small model with fresh vectors, with those of the training steps, and planned ahead,
from the same weights. Prints the score after each epoch, one JSON line per run.
"""

from __future__ import annotations

import argparse
import json

import torch

from tests.benchmarks.training.__main__ import numbers
from tests.benchmarks.training.plans import SHUFFLED
from tests.benchmarks.training.setups import FULL, SETUPS, SMALL
from tests.benchmarks.training.wall_time import Way, trained

WAYS = {
    "shuffled": Way(SHUFFLED),
    "fresh": Way(),
    "training": Way(recorded=True),
    "ahead": Way(recorded=True, ahead=0.1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setups", nargs="+", default=list(SETUPS), choices=list(SETUPS))
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2], help="such as 0,1,2")
    parser.add_argument("--small", action="store_true", help="runs of seconds")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    for name in options.setups:
        size = (SMALL if options.small else FULL)[name]
        setup = SETUPS[name](size)
        for seed in options.seeds:
            for way in options.ways:
                curve = trained(setup, size, WAYS[way], size.epochs, seed)
                found = {"setup": name, "seed": seed, "way": way, "curve": curve}
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # as in the module next to it
    torch.set_num_threads(1)
    main()
