"""``python -m tests.benchmarks.training.wall_time curves.json curves.svg``: scores against wall
time, with all that plans cost: embedding, planning, and waiting for it.

Each way trains for as many epochs as fit into the same seconds, by the cost of one epoch that is
measured first, and lowers the learning rate over these. Held-out rows are judged off the clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from batchplan.report.palette import INK, PLANS, STYLE
from batchplan.training import EpochPlans
from tests.benchmarks.training.__main__ import numbers
from tests.benchmarks.training.models import Training, embed, reciprocal_rank
from tests.benchmarks.training.plans import BATCH_SIZE, SHUFFLED
from tests.benchmarks.training.setups import FULL, SETUPS, Setup, Size


@dataclass(frozen=True)
class Way:
    """How plans come about.

    Attributes:
        planner: by `batchplan.plan`.
        planned: epochs that it plans; those that follow are shuffled. None for all.
        recorded: vectors are those of the training steps, but for the first epoch.
        ahead: the share of an epoch's steps that are left when the next one is planned.
    """

    planner: str = "partition"
    planned: int | None = None
    recorded: bool = False
    ahead: float | None = None


WAYS = {
    SHUFFLED: Way(SHUFFLED),
    "partition": Way(),
    "partition for 4 epochs, then shuffled": Way(planned=4),
    "the same, free embeddings": Way(planned=4, recorded=True),
}

Curve = list[tuple[float, float]]


def main() -> None:
    options = _options()
    size = FULL[options.setup]
    setup = SETUPS[options.setup](size)
    runs: list[dict[str, Any]] = []
    cost = {
        SHUFFLED: _epoch_seconds(setup, size, Way(SHUFFLED)),
        "partition": _epoch_seconds(setup, size, Way()),
        "recorded": _epoch_seconds(setup, size, Way(recorded=True)),
    }
    for seed in options.seeds:
        for name, way in WAYS.items():
            epochs = _epochs(way, options.seconds, cost)
            curve = trained(setup, size, way, epochs, seed)
            runs.append({"way": name, **asdict(way), "setup": options.setup, "seed": seed,
                         "epochs": epochs, "curve": curve})  # fmt: skip
            told = " ".join(f"{seconds:.0f}s:{100 * score:.2f}" for seconds, score in curve)
            print(f"seed {seed}, {name}: {told}", file=sys.stderr, flush=True)
            options.curves.write_text(json.dumps(runs, indent=1) + "\n")
    with matplotlib.rc_context(STYLE):  # a date would change the file with every run
        drawn(runs).savefig(options.picture, metadata={"Date": None})


def trained(setup: Setup, size: Size, way: Way, epochs: int, seed: int) -> Curve:
    """The seconds after which each epoch ended, and the score of the model then."""
    torch.manual_seed(seed)
    train, held_out, count = setup.train, setup.held_out, len(setup.train.x)
    steps = epochs * -(-count // BATCH_SIZE)
    training = Training(setup.model(), train.x, train.y, steps=steps, rate=size.rate)

    def now(rows: Any) -> Any:
        if way.planner == SHUFFLED:  # looks at none
            return np.zeros((len(rows), 1), np.float16)
        return embed(training.model, train.x[rows], train.y[rows])

    clock, curve = _Clock(), []
    with tempfile.TemporaryDirectory() as folder:
        plans = EpochPlans(
            folder, way.planner, embed=now, num_rows=count, seed=1000 * seed,
            embeddings="training" if way.recorded else "fresh", planned_epochs=way.planned,
            ahead=way.ahead, epochs=epochs, batch_size=BATCH_SIZE,
        )  # fmt: skip
        for epoch in range(epochs):
            with clock:
                batches = (batch.tolist() for batch in plans.for_epoch(epoch))
                needed = way.recorded and epoch + 1 < (way.planned or epochs)
                training.epoch(batches, plans.record if needed else None)
            score = reciprocal_rank(*embed(training.model, held_out.x, held_out.y))
            curve.append((clock.seconds, score))
        plans.end()
    return curve


def _epochs(way: Way, seconds: float, cost: dict[str, float]) -> int:
    """How many epochs of a way fit into the seconds."""
    planned = way.planned or 0
    of_planned = cost["recorded" if way.recorded else way.planner]
    if way.planned is None:
        return max(1, round(seconds / of_planned))
    return planned + max(0, round((seconds - planned * of_planned) / cost[SHUFFLED]))


def _epoch_seconds(setup: Setup, size: Size, way: Way) -> float:
    """Of the second epoch, for which kernels are loaded, and all rows were recorded."""
    (before, _), (after, _) = trained(setup, size, way, 2, seed=0)
    return after - before


def drawn(runs: list[dict[str, Any]]) -> Figure:
    """A line for each run, in the colour of its way."""
    figure = Figure(figsize=(680 / 72, 300 / 72), layout="constrained")
    axes = figure.subplots()
    for way, colour in zip(WAYS, (INK, *PLANS), strict=False):
        curves = [run["curve"] for run in runs if run["way"] == way]
        for label, curve in zip([way, *[None] * len(curves)], curves, strict=False):
            seconds, scores = zip(*curve, strict=True)
            points = [100 * score for score in scores]
            axes.plot(seconds, points, ".-", color=colour, linewidth=1.2, label=label)
    axes.set_xlabel("seconds: embedding, planning and training")
    axes.set_ylabel("MRR, hundredths")
    axes.legend(frameon=False)
    return figure


class _Clock:
    """Wall time of the blocks that it is the context of."""

    seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.training.wall_time", description=__doc__
    )
    parser.add_argument("--setup", choices=SETUPS, default="pretrained")
    parser.add_argument("--seconds", type=float, default=150, help="of each run")
    parser.add_argument("--seeds", type=numbers, default=[0], help="such as 0,1,2")
    parser.add_argument("curves", type=Path, help="JSON, written")
    parser.add_argument("picture", type=Path, help="SVG, written")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # as in the module beside it
    torch.set_num_threads(1)
    main()
