"""``make bench``: the figures of docs/performance.md and planners.md, measured on this machine.

Ratios are between things timed in one run; nothing here passes or fails a test by its speed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

import torch

from tests.benchmarks import (
    appendix_j,
    evaluation,
    greedy,
    memory,
    partition,
    peers,
    planners,
    products,
    quality,
    ray_kill,
    recorder,
    scale,
    startup,
    walks,
)
from tests.benchmarks.speed import measure as speed

BENCHMARKS = {
    "quality": quality.measure,
    "planners": planners.measure,
    "partition": partition.measure,
    "groups": partition.measure_groups,
    "partition-million": partition.measure_million,
    "speed": speed.measure,
    "peers": peers.measure,
    "startup": startup.measure,
    "appendix-j": appendix_j.measure,
    "products": products.measure,
    "walks": walks.measure,
    "evaluation": evaluation.measure,
    "scale-evaluate": evaluation.measure_scale,
    "scale-evaluate-million": evaluation.measure_scale_million,
    "greedy": greedy.measure,
    "memory": memory.measure,
    "ray-kill": ray_kill.measure,
    "recorder": recorder.measure,
}


def main() -> None:
    if sys.argv[1:2] == ["scale"]:  # has options of its own
        return scale.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("sample_data"), help="folder of pairs")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("only", nargs="*", help=f"of {', '.join(BENCHMARKS)}; default all")
    options = parser.parse_args()
    if unknown := set(options.only) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    machine = platform.processor() or platform.machine()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{machine}, {torch.get_num_threads()} threads, {versions}")
    found = {}
    for name, measure in BENCHMARKS.items():
        if options.only and name not in options.only:
            continue
        print(f"\n{name}: {measure.__doc__.splitlines()[0]}", flush=True)
        found[name] = measure(options.data)
        if name == "planners":
            print(planners.markdown(found[name]), flush=True)
            continue
        for figure, value in found[name].items():
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            print(f"  {figure:<44} {text}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


main()
