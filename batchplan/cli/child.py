"""The process that runs one planner of `compare`. It ends when its parent process ends.

It reads its job from standard input, as `batchplan.comparison.children` writes it, and prints the
cost. Its arguments are the planner, which only labels it in process lists, and the number of a pipe
that closes however the parent ends.
"""

import json
import os
import sys
import time
from dataclasses import asdict

from batchplan.__main__ import main
from batchplan.processes import end_with

_PATIENCE = 5  # seconds for removing partly written files


def _plan() -> None:
    from batchplan.cli.console import Watch
    from batchplan.comparison.children import Cost
    from batchplan.data import load_embeddings
    from batchplan.files.documents import parse_json
    from batchplan.planners import PLANNERS, run_planner
    from batchplan.runtime import Runtime, peak_device_memory, peak_memory

    job = parse_json(sys.stdin.buffer.read(), any_text=True)
    planner = job["setting"]["planner"]
    options = PLANNERS[planner].options(**job["setting"]["options"])
    watch = Watch(quiet=True, verbose=False)
    runtime = Runtime(**job["runtime"], observer=watch)
    began = time.perf_counter()
    with watch.watching():
        data = load_embeddings(**job["source"], memory=runtime.memory, observer=watch)
        plan = run_planner(planner, data, options, runtime)
        with runtime.stage("write"):
            plan.save(job["plan"])
    stages = {stage: round(taken, 4) for stage, taken in watch.seconds.items()}
    seconds = round(time.perf_counter() - began, 4)
    cost = Cost(seconds, stages, peak_memory(), peak_device_memory())
    sys.stdout.write(json.dumps(asdict(cost)))


if __name__ == "__main__":
    end_with(os.getppid(), int(sys.argv[2]), _PATIENCE)
    main(_plan)
