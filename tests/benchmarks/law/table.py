"""``python -m tests.benchmarks.law.table``: the tables of the results, in Markdown."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.finetune.table import SEEDS, interval
from tests.benchmarks.law.lines import CHOICES, LINES

RESULTS = Path(__file__).parent / "results.jsonl"
DATA = "help", "debian", "code", "gloss", "dictionary", "edict"
PLACE = "data", "rows", "batch_size", "temperature", "epochs", "copies"  # of a run in the grid
USUAL = {"temperature": 0.05, "epochs": 2.0, "copies": 0.0}
OTHERS = {"rows": 20_000, "batch_size": 32}  # of the lines that a few places have
IN_ALL = "shuffled", "hardness", "planned", "planned-hardness"  # lines of the other tables
BEATEN = "beaten_positives"

Run = dict[str, Any]


class Grid:
    """The runs of a file, by place and line."""

    def __init__(self, path: Path = RESULTS) -> None:
        self._rates: dict[tuple[Any, ...], dict[float, list[Run]]] = {}
        for line in path.read_text().splitlines():
            run = json.loads(line)
            longer = run["as_long_as"]
            place = [run[name] for name in PLACE if name != "epochs" or longer is None]
            rates = self._rates.setdefault((*place, run["line"], longer), {})
            rates.setdefault(run["rate"], []).append(run)

    def of(self, place: Run, line: str, as_long_as: str | None = None) -> dict[int, Run]:
        """The runs of a line by seed, at the rate that most seeds have run with, or that seed 0
        found best."""
        key = [place[name] for name in PLACE if name != "epochs" or as_long_as is None]
        longer = as_long_as and f"{as_long_as}:{place['epochs']:g}"
        rates = self._rates.get((*key, line, longer), {})
        own = max(rates.values(), default=[], key=lambda runs: (
            min(len(runs), SEEDS), max(run["validation"] for run in runs if run["seed"] == 0)
        ))  # fmt: skip
        return {run["seed"]: run for run in own}

    def values(self, name: str, **fixed: Any) -> list[Any]:
        """The values of a part of the places that agree with the fixed ones, rising."""
        places = (run for rates in self._rates.values() for runs in rates.values() for run in runs)
        return sorted({run[name] for run in places if fixed.items() <= run.items()})

    def gain(
        self, place: Run, line: str, base: str, as_long_as: str | None = None
    ) -> tuple[float, float, int] | None:
        """The mean gain of a line over another in nDCG@10 of the test pairs, half of its 95%
        interval, and the number of seeds; None if no seed has run with both.

        Args:
            as_long_as: the base runs for as long as this planned line, not for as many epochs.
        """
        own, other = self.of(place, line), self.of(place, base, as_long_as)
        seeds = sorted(own.keys() & other.keys())
        if not seeds:
            return None
        return *interval([own[seed]["test"] - other[seed]["test"] for seed in seeds]), len(seeds)

    def time(self, place: Run, line: str, base: str, kind: str = "seconds") -> float | None:
        """The least processor time of a line over that of another one."""
        own, other = self.of(place, line), self.of(place, base)
        if not own or not other:
            return None
        return float(min(run[kind] for run in own.values())
                     / min(run["seconds"] for run in other.values()))  # fmt: skip


def told(gain: tuple[float, float, int] | None, usual: int = SEEDS) -> str:
    """A gain with its interval, and the number of seeds unless it is the usual one."""
    if gain is None:
        return ""
    mean, half, seeds = gain
    error = f" ± {half:.2f}" if seeds > 1 else ""
    few = "" if seeds == usual else f" ({seeds})"
    return f"{signed(mean)}{error}{few}"


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def short(grid: Grid) -> str:
    """Over all places with two epochs: in how many a line ends above another one, and the lowest,
    median and highest mean gain."""
    pairs = [
        ("hardness", "shuffled", None),
        ("planned", "shuffled", None),
        ("planned", "shuffled", "planned"),
        ("planned-hardness", "hardness", None),
        ("planned-hardness", "hardness", "planned-hardness"),
        ("planned", "hardness", None),
    ]
    lines = [["", "Above in", "Lowest", "Median", "Highest"], ["---"] * 5]
    for line, base, longer in pairs:
        every = (grid.gain(place, line, base, longer) for place in places(grid, line=line, **USUAL))
        means = [gain[0] for gain in every if gain is not None]
        if means:
            text = f"{LINES[line].text} over {LINES[base].text}" + ", in equal time" * bool(longer)
            spread = (signed(float(one)) for one in (min(means), np.median(means), max(means)))
            above = f"{sum(mean > 0 for mean in means)} of {len(means)}"
            lines.append([text, above, *spread])
    return joined(lines)


def figures(grid: Grid, batch_size: int, name: str = BEATEN) -> list[tuple[str, int, float, float]]:
    """For each place that has planned, with two epochs: the data set, the pairs, a figure of the
    last plan, and the mean gain of plans over shuffled batches.

    Args:
        name: in `EpochPlans.figures`; by default, the share of random negatives that are more
            similar than the own pair.
    """
    found = []
    for place in places(grid, line="planned", batch_size=batch_size, **USUAL):
        if (gain := grid.gain(place, "planned", "shuffled")) is not None:
            runs = grid.of(place, "planned").values()
            figure = float(np.mean([run["figures"][name] for run in runs]))
            found.append((place["data"], place["rows"], figure, gain[0]))
    return found


def times(grid: Grid) -> list[float]:
    """The processor times of planned training over shuffled, of all places with two epochs."""
    every = (grid.time(place, "planned", "shuffled")
             for place in places(grid, line="planned", **USUAL))  # fmt: skip
    return [time for time in every if time is not None]


def law(grid: Grid, batch_size: int) -> str:
    """For each data set and number of pairs, after two epochs: the score of shuffled batches, what
    `hardness_mode` and plans add, and what plans add and cost where it is used."""
    head = [
        "Data",
        "Pairs",
        "shuffled",
        "`hardness_mode`",
        "planned",
        "its time",
        "planned, in equal time",
        "planned, over `hardness_mode`",
        "the same, in equal time",
    ]
    lines = [head, ["---"] * len(head)]
    for data in DATA:
        for rows in grid.values("rows", data=data, batch_size=batch_size, line="planned", **USUAL):
            place = {"data": data, "rows": rows, "batch_size": batch_size, **USUAL}
            time = grid.time(place, "planned", "shuffled")
            scores = [run["test"] for run in grid.of(place, "shuffled").values()]
            lines.append([
                data, f"{rows:,}", f"{np.mean(scores):.2f}",
                told(grid.gain(place, "hardness", "shuffled")),
                told(grid.gain(place, "planned", "shuffled")),
                "" if time is None else f"{time:.1f}",
                told(grid.gain(place, "planned", "shuffled", "planned")),
                told(grid.gain(place, "planned-hardness", "hardness")),
                told(grid.gain(place, "planned-hardness", "hardness", "planned-hardness")),
            ])  # fmt: skip
    return joined(lines)


def others(grid: Grid) -> str:
    """What each line of no other table gains over its base on each data set, in `OTHERS`, in larger
    batches and for more epochs, and the range of its processor time over that line's."""
    head = ["Batches", "B", "Epochs", "over", *DATA, "Time"]
    lines = [head, ["---"] * len(head)]
    settings = [grid.values(name) for name in ("batch_size", "epochs")]
    for (name, line), size, epochs in product(LINES.items(), *settings):
        setting = {**OTHERS, "batch_size": size, **USUAL, "epochs": epochs}
        every = [{"data": data, **setting} for data in DATA]
        cells = [told(grid.gain(place, name, line.base)) for place in every]
        if name not in (*IN_ALL, *CHOICES) and any(cells):
            base = LINES[line.base].text
            # options of plans ran on other days, beside other work, than the default
            time = "" if line.base == "planned" else _span(grid, every, name)
            lines.append([line.text, f"{size:,}", f"{epochs:g}", base, *cells, time])
    return joined(lines)


def _span(grid: Grid, every: list[Run], name: str) -> str:
    times = sorted(time for place in every
                   if (time := grid.time(place, name, LINES[name].base)) is not None)  # fmt: skip
    return f"{times[0]:.1f} to {times[-1]:.1f}"


def picks(grid: Grid) -> str:
    """What each line of `CHOICES` gains over shuffled batches on each data set, in `OTHERS`, and
    its processor time over theirs; and what those gain there that are best, on average, on all
    other data sets."""
    every = [{"data": data, **OTHERS, **USUAL} for data in DATA]
    gains = {name: [grid.gain(place, name, "shuffled") for place in every] for name in CHOICES}
    means = {name: np.array([one[0] for one in own if one is not None])
             for name, own in gains.items()}  # fmt: skip
    means = {name: own for name, own in means.items() if len(own) == len(DATA)}
    if len(means) < 2:
        return ""
    found, chosen = [], []
    for left_out in range(len(DATA)):
        others = {name: np.delete(own, left_out).mean() for name, own in means.items()}
        chosen.append(max(others, key=lambda name: others[name]))
        found.append(means[chosen[-1]][left_out])
    lines = [["Plans", *DATA, "Mean", "Time"], ["---"] * (len(DATA) + 3)]
    lines += [
        [LINES[name].text, *map(told, gains[name]), signed(float(own.mean())),
         _span(grid, every, name)]
        for name, own in means.items()
    ]  # fmt: skip
    cells = [f"{signed(float(gain))} ({LINES[name].text})"
             for gain, name in zip(found, chosen, strict=True)]  # fmt: skip
    lines.append(["the best of the other data sets", *cells, signed(float(np.mean(found))), ""])
    return joined(lines)


def settings(grid: Grid, name: str) -> str:
    """What plans gain by the value of a part of the usual setting, for each place that has run with
    more than the usual value: the score of shuffled batches, what plans add to them, and what plans
    add to `hardness_mode`."""
    rest = {key: value for key, value in USUAL.items() if key != name}
    columns = grid.values(name, line="planned", as_long_as=None, **rest)
    head = ["Data", "Pairs", "B", *(f"{name} {value:g}" for value in columns)]
    lines = [head, ["---"] * len(head)]
    for place in places(grid, line="planned", **rest, **{name: USUAL[name]}):
        every = [{**place, name: value} for value in columns]
        cells = [_gains(grid, one) for one in every]
        if sum(map(bool, cells)) > 1:
            lines.append([place["data"], f"{place['rows']:,}", f"{place['batch_size']:,}", *cells])
    return joined(lines)


def _gains(grid: Grid, place: Run) -> str:
    scores = [run["test"] for run in grid.of(place, "shuffled").values()]
    found = [told(grid.gain(place, "planned", "shuffled")),
             told(grid.gain(place, "planned-hardness", "hardness"))]  # fmt: skip
    return f"{np.mean(scores):.2f}, {', '.join(filter(None, found))}" if any(found) else ""


def places(grid: Grid, **fixed: Any) -> list[Run]:
    """The places of the grid with runs that agree with the fixed values."""
    found = [grid.values(name, as_long_as=None, **fixed) for name in PLACE]
    every = (dict(zip(PLACE, values, strict=True)) for values in product(*found))
    own = [place for place in every if grid.of(place, fixed["line"])]
    return sorted(own, key=lambda place: (DATA.index(place["data"]), *list(place.values())[1:]))


def joined(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tables(grid: Grid) -> dict[str, str]:
    """The tables by their headings; empty ones are left out."""
    found = {"In short": short(grid)}
    found |= {f"B = {size:,}": law(grid, size)
              for size in grid.values("batch_size", line="planned", **USUAL)}  # fmt: skip
    found |= {
        name.capitalize(): settings(grid, name) for name in ("epochs", "temperature", "copies")
    }
    found["Other lines"], found["Options of plans"] = others(grid), picks(grid)
    return {name: table for name, table in found.items() if table.count("\n") > 1}


def main() -> None:
    for name, table in tables(Grid()).items():
        print(f"\n{name}\n\n{table}")


if __name__ == "__main__":
    main()
