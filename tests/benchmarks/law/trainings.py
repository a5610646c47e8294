"""What `batchplan.expectation` reads, and what it would say of each training if its data were not
measured."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

import batchplan.expectation
from batchplan.expectation import LARGE, Expectation, Training, expectation
from tests.benchmarks.finetune import table as finetuned
from tests.benchmarks.finetune.domains import DOMAINS
from tests.benchmarks.finetune.lines import LINES
from tests.benchmarks.law.table import (
    BEATEN,
    DATA,
    OTHERS,
    USUAL,
    Grid,
    figures,
    joined,
    signed,
    told,
)

# Planned lines, and the lines without a plan that they are compared with.
BASES = {"planned-later": "shuffled", "planned-cached-256": "cached-256",
         "planned-cached-1024": "cached-1024"}  # fmt: skip
COMPARED = {"`hardness_mode`": ("hardness", "hardness"), "planned": ("planned-later", "planned"),
            "both": ("planned-hardness-4", "planned-hardness")}  # fmt: skip
TRANSFORMERS = {"minilm": "MiniLM", "mpnet": "MPNet-base"}
FILE = Path(batchplan.expectation.__file__).with_name("trainings.csv")


def trainings(grid: Grid, runs: list[finetuned.Run]) -> list[Training]:
    """The mean gains of plans over shuffled batches in two epochs: of the static models, and of
    fine-tuned ones whose runs have kept the figures of their plans, over random batches of the same
    size."""
    found = [
        Training(data, "static", rows, size, round(share, 4), round(gain, 2))
        for size in grid.values("batch_size", line="planned")
        for data, rows, share, gain in figures(grid, size)
    ]
    known = {
        (run["domain"], run["model"], run["line"], run["rows"]): run
        for run in runs
        if run["line"] in BASES and run["epochs"] == 2 and "figures" in run and run["test"]
    }
    for (domain, model, line, rows), run in known.items():
        own, base = (finetuned.final(runs, domain, name, 2, model, rows)
                     for name in (line, BASES[line]))  # fmt: skip
        if apart := finetuned.differences(own, base):
            share, gain = run["figures"][BEATEN], float(np.mean(apart))
            found.append(Training(domain, model, rows, LINES[line].batch_size, round(share, 4),
                                  round(gain, 2)))  # fmt: skip
    return found


def written(found: list[Training]) -> str:
    """The text of the file."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows([Training._fields, *found])
    return text.getvalue()


def foretold(found: list[Training]) -> list[Expectation]:
    """What the trainings with other data sets say of each one."""
    return [
        expectation(one.beaten_positives, one.batch_size,
                    [other for other in found if other.data != one.data])
        for one in found
    ]  # fmt: skip


def table(found: list[Training]) -> str:
    """A row for each training, by the share of beaten positives, and what others say of it."""
    lines = [["Data", "Model", "Pairs", "B", "Beaten", "Gain", "By other data"], ["---"] * 7]
    for one, said in sorted(zip(found, foretold(found), strict=True),
                            key=lambda pair: pair[0].beaten_positives):  # fmt: skip
        usual, lowest, highest = map(signed, said[:3])
        lines.append([one.data, one.model, f"{one.rows:,}", f"{one.batch_size:,}",
                      f"{100 * one.beaten_positives:.1f}%", signed(one.gain),
                      f"{usual} ({lowest} to {highest})"])  # fmt: skip
    return joined(lines)


def kinds(found: list[Training]) -> str:
    """A row for each kind of trainings and for static and other models: the gains of plans."""
    lines = [["Batches, beaten positives", "Trainings", "Median", "Range"], ["---"] * 4]
    gains: dict[tuple[str, str], list[float]] = {}
    for one in sorted(found, key=lambda one: (one.batch_size > LARGE, one.beaten_positives)):
        model = "static" if one.model == "static" else "transformers"
        kind = expectation(one.beaten_positives, one.batch_size, found).alike
        short = kind.removeprefix("batches of ").removesuffix(" beaten positives")
        gains.setdefault((short.replace(" and ", ", "), model), []).append(one.gain)
    for (kind, model), own in gains.items():
        usual, lowest, highest = map(signed, (float(np.median(own)), min(own), max(own)))
        lines.append([kind, f"{len(own)} {model}", usual, f"{lowest} to {highest}"])
    return joined(lines)


def largest(grid: Grid, runs: list[finetuned.Run]) -> str:
    """For each data set, of transformers and of static models, the training on the most pairs, two
    epochs of batches of 64 or 32: what is added to the score of shuffled batches."""
    lines = [["Trained on", *COMPARED], ["---"] * (1 + len(COMPARED))]
    for data in dict.fromkeys([*DOMAINS, *DATA]):
        rows, model = max((_most(runs, data, model), model) for model in TRANSFORMERS)
        if rows:
            gains = _tuned(runs, data, model, rows)
            lines.append([f"{rows:,} of {data}, {TRANSFORMERS[model]}", *gains])
    for data in DATA:
        place = {"data": data, "batch_size": OTHERS["batch_size"], **USUAL}
        place["rows"] = max(grid.values("rows", line="planned", **place))
        gains = [told(grid.gain(place, line, "shuffled")) for _, line in COMPARED.values()]
        lines.append([f"{place['rows']:,} of {data}, static", *gains])
    return joined(lines)


def base_size(runs: list[finetuned.Run]) -> str:
    """The same of MPNet-base, a row for each domain."""
    lines = [["MPNet-base", *COMPARED], ["---"] * (1 + len(COMPARED))]
    for data in DOMAINS:
        if rows := _most(runs, data, "mpnet"):
            lines.append([f"{rows:,} of {data}", *_tuned(runs, data, "mpnet", rows)])
    return joined(lines)


def _most(runs: list[finetuned.Run], data: str, model: str) -> int:
    """The most pairs that the model was trained on."""
    one = {"domain": data, "model": model, "line": "planned-later", "epochs": 2}
    return max((run["rows"] for run in runs if one.items() <= run.items() and run["test"]),
               default=0)  # fmt: skip


def _tuned(runs: list[finetuned.Run], data: str, model: str, rows: int) -> list[str]:
    """What each line adds to the model's score."""
    names = "shuffled", *(tuned for tuned, _ in COMPARED.values())
    base, *own = (finetuned.final(runs, data, name, 2, model, rows) for name in names)
    return [finetuned.over(line, base, "ndcg@10") for line in own]


def errors(found: list[Training]) -> tuple[float, float, float]:
    """The mean absolute error of what others say, and of the mean gain of all other data sets;
    the share of gains within the range."""
    said = foretold(found)
    means = [np.mean([other.gain for other in found if other.data != one.data]) for one in found]
    own = [abs(one.gain - told.median) for one, told in zip(found, said, strict=True)]
    plain = [abs(one.gain - mean) for one, mean in zip(found, means, strict=True)]
    within = [told.lowest <= one.gain <= told.highest
              for one, told in zip(found, said, strict=True)]  # fmt: skip
    return float(np.mean(own)), float(np.mean(plain)), float(np.mean(within))
