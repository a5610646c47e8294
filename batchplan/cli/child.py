"""The process that runs one planner of `compare`. It ends when its parent process ends.

Its arguments are the planner, which only labels it in process lists, and the folder of its job
(see `batchplan.comparison.children`). Its standard input is a pipe to which the parent never
writes, and which closes however the parent ends.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from batchplan.__main__ import main
from batchplan.processes import end_with

_PATIENCE = 5  # seconds for removing partly written files


def _plan() -> None:
    from batchplan.cli.console import Watch
    from batchplan.comparison.children import COST, PLAN, Cost, Job
    from batchplan.data import load_embeddings
    from batchplan.planners import run_planner
    from batchplan.runtime import peak_device_memory, peak_memory

    watch = Watch(quiet=True, verbose=False)
    folder = Path(sys.argv[2])
    job = Job.read(folder, watch)
    setting, runtime = job.setting, job.runtime
    began = time.perf_counter()
    with watch.watching():
        data = load_embeddings(**job.source, memory=runtime.memory, observer=runtime.observer)
        plan = run_planner(setting.planner, data, setting.options, runtime)
        with runtime.stage("write"):
            plan.save(folder / PLAN)
    stages = {stage: round(taken, 4) for stage, taken in watch.seconds.items()}
    seconds = round(time.perf_counter() - began, 4)
    cost = Cost(seconds, stages, peak_memory(), peak_device_memory())
    (folder / COST).write_text(json.dumps(asdict(cost)))


if __name__ == "__main__":
    end_with(0, _PATIENCE)
    main(_plan)
