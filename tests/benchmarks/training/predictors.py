"""``python -m tests.benchmarks.training.predictors runs.json [RATE]``: which figures of plans put
them, before training, in the order of the models that were trained on them.

The runs come from ``python -m tests.benchmarks.training --small --figures --json runs.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from tests.benchmarks.training.figures import MARGINS
from tests.benchmarks.training.plans import SHUFFLED

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Runs = list[dict[str, Any]]

_DRAWS = 2000
_PRICES = (0.1, 0.3, 1.0)  # of the share of likely false negatives
_POWERS = (0.5, 1.0, 2.0)  # of the share of near rows that are new


def main() -> None:
    runs = json.loads(Path(sys.argv[1]).read_text())
    print(table(runs, *map(float, sys.argv[2:])))


def table(runs: Runs, rate: float = 1.0) -> str:
    """Spearman correlations with the gain by start and over all, best first, and 95% intervals.

    Args:
        rate: the learning rate of the runs that count, as a multiple of the set-up's; starts
            without such runs are left out.
    """
    setups = dict.fromkeys(run["setup"] for run in runs if run["rate"] == rate)
    data = {setup: own for setup in setups if len(own := paired(runs, setup, rate)) > 2}
    plans = sorted(set.intersection(*(set(own) for own in data.values())))
    seeds = [min(len(own[plan]) for plan in plans) for own in data.values()]
    gains = _values(data, plans, seeds, lambda run: run["gain"])
    whole = [np.arange(len(plans) * count)[None] for count in seeds]
    draws = _draws(len(plans), seeds)
    rows = []
    for name, figure in candidates().items():
        values = _values(data, plans, seeds, figure)
        starts = zip(values, gains, whole, strict=True)
        own = [_correlation([value], [gain], [all_]) for value, gain, all_ in starts]
        rows.append((name, own, _correlation(values, gains, whole),
                     _correlation(values, gains, draws)))  # fmt: skip
    rows.sort(key=lambda row: -row[2][0])
    best = rows[0][3]
    lines = [["figure", *data, "all", "95%", "less the first, 95%"], ["---"] * (len(data) + 4)]
    for name, own, pooled, drawn in rows:
        lines.append([name, *(f"{value[0]:.2f}" for value in own), f"{pooled[0]:.2f}",
                      _interval(drawn), _interval(drawn - best)])  # fmt: skip
    counts = ", ".join(f"{name} {count}" for name, count in zip(data, seeds, strict=True))
    head = f"{len(plans)} plans; seeds: {counts}\n\n"
    return head + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def candidates() -> dict[str, Callable[[dict[str, Any]], float]]:
    """By name, what to compute of a run: a figure of its first plan, or the mean over its plans."""
    found: dict[str, Callable[[dict[str, Any]], float]] = {"new": _new}
    cheap = ["1 - p", *(f"{name} @{margin}" for margin in MARGINS
                        for name in ("1 - p", "false negatives", "true push"))]  # fmt: skip
    for name in ("gap reduction", *cheap):
        found[name] = partial(_first, name=name)
    for margin in MARGINS:
        name = f"1 - p @{margin}"
        found[f"{name}, mean of epochs"] = partial(_mean, name=name)
        guarded, false = f"guarded gap reduction @{margin}", f"false negatives @{margin}"
        found[guarded] = partial(_first, name=guarded)
        for price in _PRICES:
            mixed = f"{guarded} - {price:g} x false negatives"
            found[mixed] = partial(_less, name=guarded, other=false, price=price)
        for power in _POWERS:
            found[f"{guarded} x new^{power:g}"] = partial(_times_new, name=guarded, power=power)
    return found


def _first(run: dict[str, Any], name: str) -> float:
    return float(run["figures"][0][name])


def _mean(run: dict[str, Any], name: str) -> float:
    return float(np.mean([figures[name] for figures in run["figures"]]))


def _less(run: dict[str, Any], name: str, other: str, price: float) -> float:
    return _first(run, name) - price * _first(run, other)


def _times_new(run: dict[str, Any], name: str, power: float) -> float:
    return _first(run, name) * _new(run) ** power


def _new(run: dict[str, Any]) -> float:
    """The share of near rows that are new, after the first epoch, when all are."""
    return float(np.mean([figures["new"] for figures in run["figures"][1:]]))


def paired(runs: Runs, setup: str, rate: float = 1.0) -> dict[str, Runs]:
    """By plan, the runs with their gains over the shuffled run of the same seed, by seed. Figures
    may come from a run with another learning rate: the first plan is the same."""
    own = sorted((run for run in runs if run["setup"] == setup), key=lambda run: run["seed"])
    told = {(run["plan"], run["seed"]): run["figures"] for run in own if run["figures"]}
    own = [run for run in own if run["rate"] == rate and (run["plan"], run["seed"]) in told]
    base = {run["seed"]: run["mrr"] for run in own if run["plan"] == SHUFFLED}
    found: dict[str, Runs] = {}
    for run in own:
        gain, figures = run["mrr"] - base[run["seed"]], told[run["plan"], run["seed"]]
        found.setdefault(run["plan"], []).append({**run, "gain": gain, "figures": figures})
    return found


def _values(
    data: dict[str, dict[str, Runs]],
    plans: list[str],
    seeds: list[int],
    figure: Callable[[dict[str, Any]], float],
) -> list[Array]:
    """Of each start, float64 (plans * seeds,)."""
    return [
        np.array([figure(run) for plan in plans for run in own[plan][:count]])
        for own, count in zip(data.values(), seeds, strict=True)
    ]


def _draws(plans: int, seeds: list[int]) -> list[Places]:
    """Bootstrap samples of plans, the same for all starts, and for each of its seeds: int64
    (draws, plans * seeds), places in `_values`."""
    draw = np.random.default_rng(0)
    chosen = draw.integers(plans, size=(_DRAWS, plans, 1))
    return [
        (chosen * count + draw.integers(count, size=(_DRAWS, plans, count))).reshape(_DRAWS, -1)
        for count in seeds
    ]


def _correlation(figures: list[Array], gains: list[Array], draws: list[Places]) -> Array:
    """float64 (draws,): of the ranks within each start, over all starts."""
    products = squares = others = np.zeros(len(draws[0]))
    for figure, gain, places in zip(figures, gains, draws, strict=True):
        a, b = (rankdata(values[places], axis=1) / places.shape[1] for values in (figure, gain))
        a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
        products = products + (a * b).sum(1)
        squares, others = squares + (a * a).sum(1), others + (b * b).sum(1)
    result: Array = products / np.sqrt(np.maximum(squares * others, 1e-300))
    return result


def _interval(values: Array) -> str:
    low, high = np.percentile(values, [2.5, 97.5])
    return f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    main()
