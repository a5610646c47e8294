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
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from batchplan import Plan
from batchplan.report.palette import INK, PLANS, STYLE
from batchplan.training import EmbeddingRecorder, EpochPlans
from tests.benchmarks.training.models import Training, embed, reciprocal_rank
from tests.benchmarks.training.plans import BATCH_SIZE, SHUFFLED
from tests.benchmarks.training.setups import FULL, SETUPS, Setup, Size


@dataclass(frozen=True)
class Way:
    """How plans come about.

    Attributes:
        planner: by `batchplan.plan`.
        draws: plans from one pass of embedding.
        recorded: vectors are those of the training steps, but for the first epoch.
        ahead: the next epoch is planned beside the steps of this one, from vectors of the last.
        until: epochs that are planned; those that follow are shuffled.
        doubling: each epoch has twice the mega-batches of the last, up to the most there can be.
    """

    planner: str = "partition"
    draws: int = 1
    recorded: bool = False
    ahead: bool = False
    until: int | None = None
    doubling: bool = False

    def of(self, epoch: int, rows: int) -> tuple[str, dict[str, int]]:
        """The planner of an epoch and its options."""
        if self.until is not None and epoch >= self.until:
            return SHUFFLED, {}
        if not self.doubling:
            return self.planner, {}
        return self.planner, {"mega_batches": min(2 << epoch, rows // (2 * BATCH_SIZE))}


WAYS = {
    SHUFFLED: Way(SHUFFLED),
    "partition": Way(),
    "partition, two plans from a pass": Way(draws=2),
    "partition, free embeddings": Way(recorded=True),
    "partition, free and ahead": Way(recorded=True, ahead=True),
}
_CALIBRATION = 2  # epochs, of which the last is timed

Curve = list[tuple[float, float]]


def main() -> None:
    options = _options()
    size = FULL[options.setup]
    setup = SETUPS[options.setup](size)
    runs: list[dict[str, Any]] = []
    cost = {name: _epoch_seconds(setup, size, way) for name, way in WAYS.items()}
    for seed in range(options.seeds):
        for name, way in WAYS.items():
            epochs = max(1, round(options.seconds / cost[name]))
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
    train, held_out = setup.train, setup.held_out
    steps = epochs * -(-len(train.x) // BATCH_SIZE)
    training = Training(setup.model(), train.x, train.y, steps=steps, rate=size.rate)
    clock, curve = _Clock(), []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        planned = _plans(training, way, Path(folder), seed, beside)
        recorder = planned.recorder
        for epoch in range(epochs):
            with clock:
                plan = planned.of(epoch, last=epoch + 1 == epochs)
                batches = (batch.tolist() for batch in plan)
                training.epoch(batches, recorder.record if recorder else None)
            score = reciprocal_rank(*embed(training.model, held_out.x, held_out.y))
            curve.append((clock.seconds, score))
    return curve


class _Plans:
    """The plan of each epoch, and whoever records vectors for it."""

    def __init__(
        self, plans: Callable[[int, Any], EpochPlans], vectors: Callable[[], Any],
        recorder: EmbeddingRecorder | None, beside: ThreadPoolExecutor | None,
    ) -> None:  # fmt: skip
        self.recorder, self._plans, self._vectors, self._beside = recorder, plans, vectors, beside
        self._snapshot: Any = None
        self._next: Future[Plan] | None = None

    def of(self, epoch: int, *, last: bool) -> Plan:
        if self._beside is None:
            return self._plans(epoch, self._vectors).for_epoch(epoch)
        if self._next is None:
            self._snapshot = self._vectors()
            plan = self._ahead(epoch)
        else:
            plan = self._next.result()
            self._snapshot = self._vectors()
        if not last:
            self._next = self._beside.submit(self._ahead, epoch + 1)
        return plan

    def _ahead(self, epoch: int) -> Plan:
        return self._plans(epoch, lambda: self._snapshot).for_epoch(epoch)


def _plans(
    training: Training, way: Way, folder: Path, seed: int, beside: ThreadPoolExecutor
) -> _Plans:
    count = len(training.x)

    def now(rows: Any = slice(None)) -> tuple[torch.Tensor, torch.Tensor]:
        return embed(training.model, training.x[rows], training.y[rows])

    recorder = EmbeddingRecorder(count, embed=now) if way.recorded else None

    def vectors() -> Any:
        if recorder is None:
            return now()
        sides = recorder.embeddings()
        if not way.ahead:
            return sides
        return tuple(side.rows(0, count).copy() for side in (sides.x, sides.y))

    def plans(epoch: int, source: Callable[[], Any]) -> EpochPlans:
        planner, options = way.of(epoch, count)
        if planner == SHUFFLED:  # looks at no vectors
            source = lambda: np.zeros((count, 1), np.float16)  # noqa: E731
        return EpochPlans(folder, planner, embed=source, num_rows=count, draws=way.draws,
                          seed=1000 * seed, batch_size=BATCH_SIZE, **options)  # fmt: skip

    return _Plans(plans, vectors, recorder, beside if way.ahead else None)


def _epoch_seconds(setup: Setup, size: Size, way: Way) -> float:
    """Of an epoch that is not the first, for which kernels load and all is embedded."""
    # a pass of embedding serves some epochs
    epochs = _CALIBRATION * way.draws
    curve = trained(setup, size, way, epochs, seed=0)
    before, after = curve[epochs - way.draws - 1][0], curve[-1][0]
    return (after - before) / way.draws


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
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("curves", type=Path, help="JSON, written")
    parser.add_argument("picture", type=Path, help="SVG, written")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # as in the module beside it
    torch.set_num_threads(1)
    main()
