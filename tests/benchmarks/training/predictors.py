"""``python -m tests.benchmarks.training.predictors runs.json``: which figures of plans, taken
before training, put the plans in the order of the models that were trained on them.

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
Runs = list[dict[str, Any]]

_DRAWS = 2000
_PRICES = (0.1, 0.3, 1.0)  # of the share of likely false negatives
_POWERS = (0.5, 1.0, 2.0)  # of the share of near rows that are new


def main() -> None:
    runs = json.loads(Path(sys.argv[1]).read_text())
    print(table(runs))


def table(runs: Runs) -> str:
    """Spearman correlations with the gain by start and over all, best first, and 95% intervals."""
    data = {setup: _paired(runs, setup) for setup in dict.fromkeys(run["setup"] for run in runs)}
    plans = sorted(set.intersection(*(set(own) for own in data.values())))
    seeds = range(min(len(of) for own in data.values() for of in own.values()))
    gains = [_values(data[name], plans, seeds, lambda run: run["gain"]) for name in data]
    rows = []
    for name, figure in candidates().items():
        values = [_values(data[setup], plans, seeds, figure) for setup in data]
        rows.append((name, values))
    draws = _draws(len(plans), len(seeds))
    whole = _whole(len(plans), len(seeds))
    found = []
    for name, values in rows:
        own = [float(_correlation([v], [g], whole)[0]) for v, g in zip(values, gains, strict=True)]
        found.append((name, own, float(_correlation(values, gains, whole)[0]),
                      _correlation(values, gains, draws)))  # fmt: skip
    found.sort(key=lambda row: -row[2])
    best = found[0][3]
    lines = [["figure", *data, "all", "95%", "less the first, 95%"], ["---"] * (len(data) + 4)]
    for name, own, pooled, drawn in found:
        lines.append([name, *(f"{value:.2f}" for value in own), f"{pooled:.3f}",
                      _interval(drawn), _interval(drawn - best)])  # fmt: skip
    count = f"{len(plans)} plans, {len(seeds)} seeds\n\n"
    return count + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def candidates() -> dict[str, Callable[[dict[str, Any]], float]]:
    """By name, what to compute of a run: a figure of its first plan, or the mean over its plans."""
    found: dict[str, Callable[[dict[str, Any]], float]] = {"new": _new}
    cheap = ["1 - p", *(f"{name} @{margin}" for margin in MARGINS
                        for name in ("1 - p", "false negatives", "true push"))]  # fmt: skip
    for name in ("gap reduction", *cheap):
        found[name] = partial(_first, name=name)
    for name in cheap:
        found[f"{name}, mean of epochs"] = partial(_mean, name=name)
    for margin in MARGINS:
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


def _paired(runs: Runs, setup: str) -> dict[str, Runs]:
    """By plan, the runs with their gains over the shuffled run of the same seed, by seed."""
    own = sorted((run for run in runs if run["setup"] == setup and run["figures"]),
                 key=lambda run: run["seed"])  # fmt: skip
    base = {run["seed"]: run["mrr"] for run in own if run["plan"] == SHUFFLED}
    found: dict[str, Runs] = {}
    for run in own:
        found.setdefault(run["plan"], []).append({**run, "gain": run["mrr"] - base[run["seed"]]})
    return found


def _values(
    data: dict[str, Runs], plans: list[str], seeds: range, figure: Callable[[Any], float]
) -> Array:
    """float64 (plans, seeds)."""
    return np.array([[figure(data[plan][seed]) for seed in seeds] for plan in plans])


def _whole(plans: int, seeds: int) -> NDArray[np.int64]:
    return np.arange(plans * seeds)[None]


def _draws(plans: int, seeds: int) -> NDArray[np.int64]:
    """Bootstrap samples of plans, and for each of seeds: int64 (draws, plans * seeds), places."""
    draw = np.random.default_rng(0)
    chosen = draw.integers(plans, size=(_DRAWS, plans, 1))
    return (chosen * seeds + draw.integers(seeds, size=(_DRAWS, plans, seeds))).reshape(_DRAWS, -1)


def _correlation(figures: list[Array], gains: list[Array], draws: NDArray[np.int64]) -> Array:
    """float64 (draws,): of the ranks within each start, over all starts."""
    products = squares = others = np.zeros(len(draws))
    for figure, gain in zip(figures, gains, strict=True):
        a, b = (rankdata(values.ravel()[draws], axis=1) for values in (figure, gain))
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
