"""``python -m tests.benchmarks.finetune.table``: the tables of the results, in Markdown."""

from __future__ import annotations

import json
import sys
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from tests.benchmarks.finetune.lines import LEVERS, LINES

SCORES = "ndcg@10", "mrr@10", "recall@10"
NANO_BEIR = "nDCG@10 of NanoBEIR"  # of runs that were asked for it
SEEDS = 3  # of a line; more where these left open which is ahead
DOMAINS = "translation", "gloss", "code"
PAPERS = (
    "shuffled", "planned-later", "gcbs", "b3", "grit", "rwr", "rwr-once", "bcs", "bcs-random",
    "scb", "scb-random", "osgd", "mined", "scns",
)  # fmt: skip
#: The lines of docs/training.md, by number of epochs; docs/training_runs.md has all.
SHOWN = {
    2: ("no-duplicates", "planned-later", "hardness", "planned-hardness-4", "b3", "cached-1024",
        "mined", "planned-mined"),
    1: ("planned-half", "planned", "hardness", "half-hardness", "half-hardness-4",
        "table-hardness-4", "cached-1024"),
}  # fmt: skip
RECIPES = {"translation": "half-hardness-4", "gloss": "half-hardness", "code": "half-hardness-4"}
RESULTS = Path(__file__).parent / "results.jsonl"
NEIGHBOURS = RESULTS.with_name("neighbours.jsonl")

Run = dict[str, Any]


def runs(path: Path = RESULTS) -> list[Run]:
    """The runs of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def final(
    found: list[Run], domain: str, line: str, epochs: float = 1, model: str = "minilm"
) -> list[Run]:
    """The runs of a line with all rows, by seed, at the rate that most of the first seeds have run
    with: lines with large batches choose their rate among such runs."""
    one = {"domain": domain, "model": model}
    rows = max((run["rows"] for run in found if one.items() <= run.items()), default=0)
    wanted = {**one, "line": line, "epochs": epochs, "rows": rows}
    rates: dict[float, list[Run]] = {}
    for run in found:
        if wanted.items() <= run.items():
            rates.setdefault(run["rate"], []).append(run)
    # further seeds at a rate are no reason to take it
    own = max(
        rates.values(), key=lambda runs: (min(len(runs), SEEDS), _validation(runs)), default=[]
    )
    return sorted(own, key=lambda run: run["seed"])


def _validation(own: list[Run]) -> float:
    return max(point["ndcg@10"] for run in own for point in run["validation"] or run["test"])


def time(own: list[Run]) -> float:
    """The least time of some runs, in steps of shuffled batches."""
    return min(run["test"][-1]["seconds"] / run["step"] for run in own)


def epoch_time(own: list[Run]) -> float:
    """The least time of an epoch of some runs, in steps of shuffled batches."""
    return time(own) / float(own[0]["epochs"])


def domains_of(found: list[Run]) -> list[str]:
    """The domains of some runs, those of the bench first."""
    names = {run["domain"] for run in found}
    return [*(name for name in DOMAINS if name in names), *sorted(names - set(DOMAINS))]


def interval(differences: list[float]) -> tuple[float, float]:
    """The mean of paired differences, and half of its 95% interval by Student's t."""
    n = len(differences)
    if n < 2:
        return float(np.mean(differences)), float("nan")
    half = t.ppf(0.975, n - 1) * np.std(differences, ddof=1) / sqrt(n)
    return float(np.mean(differences)), float(half)


def whole(epochs: float) -> int:
    """The number of epochs whose table has a run: 1 for 0.6 and 1.3, 2 for 2.2."""
    return max(1, int(epochs))


def markdown(
    found: list[Run], epochs: int = 1, model: str = "minilm", score: str = "ndcg@10"
) -> str:
    """A line for each way to train. For each domain: the mean of a score, its differences from
    shuffled and planned batches after as many epochs, and the least time of a seed, in epochs of
    shuffled batches."""
    found = [run for run in found if run["model"] == model]
    domains = domains_of(found)
    columns = "Over shuffled", "Over planned", "Time"
    head = [cell for domain in domains for cell in (domain.capitalize(), *columns)]
    lines = [["Batches", *head], ["---"] * (1 + len(head))]
    for name, line in LINES.items():
        if name in LEVERS:
            continue
        lengths = {run["epochs"] for run in found if run["line"] == name}
        for length in sorted(one for one in lengths if whole(one) == epochs):
            rows = [_cells(found, domain, name, length, model, score) for domain in domains]
            if any(cell for row in rows for cell in row):
                text = line.text if length == epochs else f"{line.text}, {length:g} epochs"
                lines.append([text, *(cell for row in rows for cell in row)])
    return _joined(lines)


def _joined(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(
    found: list[Run], domain: str, line: str, epochs: float, model: str, score: str
) -> list[str]:
    bases = "shuffled", "planned-half" if whole(epochs) == 1 else "planned-later"
    own = final(found, domain, line, epochs, model)
    shuffled, planned = (final(found, domain, base, whole(epochs), model) for base in bases)
    if not own or not shuffled:
        return [""] * 4
    mean = f"{np.mean([run['test'][-1][score] for run in own]):.2f}"
    if not LINES[line].trained:
        return [mean, "", "", ""]
    took = time(own) / epoch_time(shuffled)
    return [mean, over(own, shuffled, score), over(own, planned, score), f"{took:.2f}"]


def summary(found: list[Run], epochs: int) -> str:
    """For each domain, the mean differences in nDCG@10 of the lines in `SHOWN` from shuffled
    batches after as many epochs."""
    domains = domains_of(found)
    lines = [["Batches", *map(str.capitalize, domains)], ["---"] * (1 + len(domains))]
    bases = [final(found, domain, "shuffled", epochs) for domain in domains]
    for name in SHOWN[epochs]:
        cells = [over(final(found, domain, name, epochs), base, "ndcg@10")
                 for domain, base in zip(domains, bases, strict=True)]  # fmt: skip
        lines.append([LINES[name].text, *cells])
    return _joined(lines)


def versus(found: list[Run], line: str) -> str:
    """For each domain, the mean difference in nDCG@10 after two epochs of a line from each that
    needs neither `partition` nor a second model."""
    domains = domains_of(found)
    of_line = [final(found, domain, line, 2) for domain in domains]
    lines = [["Batches", *map(str.capitalize, domains)], ["---"] * (1 + len(domains))]
    for name, other in LINES.items():
        if other.planner == "partition" or "gist" in other.loss or not other.trained:
            continue
        cells = [over(own, final(found, domain, name, 2), "ndcg@10")
                 for own, domain in zip(of_line, domains, strict=True)]  # fmt: skip
        if any(cells):
            lines.append([other.text, *cells])
    return _joined(lines)


def levers(found: list[Run], shares: list[Run]) -> str:
    """A line for each lever of one epoch: its mean differences in nDCG@10 from the recipe of the
    domain, its least time on translation in epochs of shuffled batches, and the share of the
    neighbours of the trained model that its vectors find on each domain."""
    head = ["Lever", *map(str.capitalize, DOMAINS), "Time", "Neighbours found"]
    lines = [head, ["---"] * len(head)]
    base = epoch_time(final(found, DOMAINS[0], "shuffled"))
    recipe = RECIPES[DOMAINS[0]]
    first = {"hardness": LINES["hardness"], recipe: LINES["half-hardness"]}
    for name, line in {**first, **LEVERS}.items():
        bases = {domain: final(found, domain, RECIPES[domain]) for domain in DOMAINS}
        own = bases if name == recipe else {one: final(found, one, name) for one in DOMAINS}
        if not any(own.values()):
            continue
        cells = [over(own[domain], bases[domain], "ndcg@10") for domain in DOMAINS]
        took = f"{time(own[DOMAINS[0]]) / base:.2f}" if own[DOMAINS[0]] else ""
        lines.append([line.text, *cells, took, _found(name, shares)])
    return _joined(lines)


def _found(name: str, shares: list[Run]) -> str:
    """The shares of neighbours that the vectors of a lever find, in the order of `DOMAINS`."""
    line = LINES[name]
    kind = line.vectors if line.plan.get("random_epochs") == 0 else None
    if name in RECIPES.values() or (name in LEVERS and line.vectors and kind is None):
        kind = f"predicted by {line.vectors or 'table'}"
    of_kind = {one["domain"]: one["after"] for one in shares if one["vectors"] == kind}
    cells = [f"{100 * of_kind[domain]:.0f}%" for domain in DOMAINS if domain in of_kind]
    return ", ".join(cells)


def papers(found: list[Run], domain: str = "translation") -> str:
    """A line for each planner of a paper that has run two epochs of a domain: the mean nDCG@10 of
    its seeds, and the difference from shuffled batches."""
    base = final(found, domain, "shuffled", 2)
    lines = [["Batches", domain.capitalize(), "Over shuffled"], ["---"] * 3]
    for name in PAPERS:
        if own := final(found, domain, name, 2):
            mean = np.mean([run["test"][-1]["ndcg@10"] for run in own])
            lines.append([LINES[name].text, f"{mean:.2f}", over(own, base, "ndcg@10")])
    return _joined(lines)


def differences(own: list[Run], base: list[Run], score: str = "ndcg@10") -> list[float]:
    """How far the runs end above others with the same seed."""
    of_base = {run["seed"]: run["test"][-1][score] for run in base}
    return [run["test"][-1][score] - of_base[run["seed"]]
            for run in own if run["seed"] in of_base]  # fmt: skip


def over(own: list[Run], base: list[Run], score: str) -> str:
    """The mean difference of runs with the same seed, with its 95% interval, and their number
    unless it is `SEEDS`; empty for the same runs."""
    found = differences(own, base, score)
    if not found or own == base:
        return ""
    mean, half = interval(found)
    n = len(found)
    error = f" ± {half:.2f}" if n > 1 else ""
    seeds = "" if n == SEEDS else f" ({n})"
    return f"{mean:+.2f}{error}{seeds}".replace("-", "\N{MINUS SIGN}")


def main() -> None:
    found = runs(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
    for model in dict.fromkeys(run["model"] for run in found):
        for epochs in sorted({whole(run["epochs"]) for run in found if run["model"] == model}):
            for score in (*SCORES, NANO_BEIR):
                scored = [run for run in found if run["test"] and score in run["test"][-1]]
                if scored:
                    table = markdown(scored, epochs, model, score)
                    print(f"\n{model}, epochs: {epochs}, {score}\n\n{table}")
    for epochs in SHOWN:
        print(f"\nOver shuffled batches, epochs: {epochs}\n\n{summary(found, epochs)}")
    print(f"\nLevers of one epoch\n\n{levers(found, runs(NEIGHBOURS))}")
    print(f"\nPlanners of papers\n\n{papers(found)}")
    for line in ("planned-later", "planned-hardness-4"):
        if any(run["line"] == line and run["epochs"] == 2 for run in found):
            text = LINES[line].text
            print(f"\n{text}, over lines without a second model\n\n{versus(found, line)}")


if __name__ == "__main__":
    main()
