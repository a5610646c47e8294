"""``python -m tests.benchmarks.finetune.table [results.jsonl] [--csv FILE]``: the tables of the
results, in Markdown, and all their figures as a file."""

from __future__ import annotations

import argparse
import csv
import io
import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from tests.benchmarks.finetune.lines import LEVERS, LINES

SCORES = "ndcg@10", "mrr@10", "recall@10"
NANO_BEIR = "nDCG@10 of NanoBEIR"  # of runs that were asked for it
ROWS = 10_240  # of the tables; docs/law.md compares with more
SEEDS = 3  # of a line; more where these left open which is ahead
DOMAINS = "translation", "gloss", "code"
PAPERS = (
    "shuffled", "planned-later", "gcbs", "b3", "grit", "rwr", "rwr-once", "bcs", "bcs-random",
    "scb", "scb-random", "osgd", "mined", "scns",
)  # fmt: skip
#: The lines of docs/training.md, by number of epochs; docs/training_runs.md has more, its file all.
SHOWN = {
    2: ("no-duplicates", "planned-later", "hardness", "planned-hardness-4", "b3", "cached-1024",
        "mined", "planned-mined"),
    1: ("planned-half", "planned", "hardness", "half-hardness", "half-hardness-4",
        "half-b3-hardness-4", "table-hardness-4", "cached-1024"),
}  # fmt: skip
RECIPES = {"translation": "half-hardness-4", "gloss": "half-hardness", "code": "half-hardness-4"}
RESULTS = Path(__file__).parent / "results.jsonl"
NEIGHBOURS = RESULTS.with_name("neighbours.jsonl")

Run = dict[str, Any]


def runs(path: Path = RESULTS) -> list[Run]:
    """The runs of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def final(
    found: list[Run],
    domain: str,
    line: str,
    epochs: float = 1,
    model: str = "minilm",
    rows: int | None = None,
) -> list[Run]:
    """The runs of a line by seed, at the rate that most of the first seeds have run with: lines
    with large batches choose their rate among such runs.

    Args:
        rows: of the training; by default the most up to `ROWS` that the domain was tested with.
    """
    one = {"domain": domain, "model": model}
    if rows is None:
        every = (run["rows"] for run in found if one.items() <= run.items() and run["test"])
        rows = max((some for some in every if some <= ROWS), default=0)
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
    for name, length in _lines(found, epochs):
        rows = [_cells(found, domain, name, length, model, score) for domain in domains]
        if name not in LEVERS and any(cell for row in rows for cell in row):
            lines.append([_text(name, length), *(cell for row in rows for cell in row)])
    return _joined(lines)


def _joined(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(
    found: list[Run], domain: str, line: str, epochs: float, model: str, score: str
) -> list[str]:
    own = final(found, domain, line, epochs, model)
    shuffled, planned = _bases(found, domain, epochs, model)
    if not own or not shuffled:
        return [""] * 4
    if not LINES[line].trained:
        return [_mean(own, score), "", "", ""]
    took = f"{time(own) / epoch_time(shuffled):.2f}"
    return [_mean(own, score), over(own, shuffled, score), over(own, planned, score), took]


def _bases(found: list[Run], domain: str, epochs: float, model: str) -> list[list[Run]]:
    """The runs of shuffled and of planned batches that others of about as many epochs are compared
    with."""
    names = "shuffled", "planned-half" if whole(epochs) == 1 else "planned-later"
    return [final(found, domain, name, whole(epochs), model) for name in names]


def summary(found: list[Run], epochs: int) -> str:
    """For each domain, the mean differences in nDCG@10 of the lines in `SHOWN` from shuffled
    batches after as many epochs."""
    return _joined([*_head(found), *(_over_shuffled(found, name, epochs)
                                     for name in SHOWN[epochs])])  # fmt: skip


def _head(found: list[Run]) -> list[list[str]]:
    domains = domains_of(found)
    return [["Batches", *map(str.capitalize, domains)], ["---"] * (1 + len(domains))]


def _over_shuffled(found: list[Run], name: str, epochs: float) -> list[str]:
    """A line and its differences from shuffled batches for each domain."""
    cells = [over(final(found, domain, name, epochs),
                  final(found, domain, "shuffled", whole(epochs)), "ndcg@10")
             for domain in domains_of(found)]  # fmt: skip
    return [_text(name, epochs), *cells]


def _text(name: str, epochs: float) -> str:
    text = LINES[name].text
    return text if epochs == whole(epochs) else f"{text}, {epochs:g} epochs"


def everything(found: list[Run], epochs: int, model: str = "minilm") -> str:
    """What shuffled batches and models before training reach, and the differences of all other
    lines from shuffled batches, except levers and planners of papers with one domain."""
    found = [run for run in found if run["model"] == model]
    domains = domains_of(found)
    lines = _head(found)
    for name in ("untrained", "shuffled"):
        ends = [final(found, domain, name, epochs) for domain in domains]
        if any(ends):
            lines.append([f"{LINES[name].text} (nDCG@10)", *map(_mean, ends)])
    for name, length in _lines(found, epochs):
        cells = _over_shuffled(found, name, length)
        alone = name in PAPERS[1:] and sum(map(bool, cells[1:])) < len(domains)
        if name not in LEVERS and LINES[name].trained and any(cells[1:]) and not alone:
            lines.append(cells)
    return _joined(lines)


def _lines(found: list[Run], epochs: int) -> list[tuple[str, float]]:
    """The lines that have run for about as many epochs, with the number of epochs of each."""
    lengths = {(run["line"], run["epochs"]) for run in found if whole(run["epochs"]) == epochs}
    return sorted(lengths, key=lambda one: (list(LINES).index(one[0]), one[1]))


def _mean(own: list[Run], score: str = "ndcg@10") -> str:
    return f"{np.mean([run['test'][-1][score] for run in own]):.2f}" if own else ""


def figures(found: list[Run]) -> str:
    """All figures as the text of a CSV file: a row for each line, domain, model and number of
    epochs, with its scores, its differences from shuffled and planned batches, half of their 95%
    intervals and their numbers of seeds, and its time in epochs of shuffled batches."""
    rows: list[dict[str, Any]] = []
    for model in dict.fromkeys(run["model"] for run in found):
        own_model = [run for run in found if run["model"] == model]
        for epochs in sorted({whole(run["epochs"]) for run in own_model}):
            for name, length in _lines(own_model, epochs):
                for domain in domains_of(own_model):
                    if row := _figures(own_model, domain, name, length, model):
                        rows.append(row)
    file = io.StringIO()
    writer = csv.DictWriter(file, max(rows, key=len), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _figures(found: list[Run], domain: str, name: str, epochs: float, model: str) -> dict[str, Any]:
    own = final(found, domain, name, epochs, model)
    shuffled, planned = _bases(found, domain, epochs, model)
    if not own or not shuffled:
        return {}
    row = {"model": model, "domain": domain, "epochs": f"{epochs:g}", "line": name,
           "batches": LINES[name].text.replace("*", ""), "rate": f"{own[0]['rate']:g}",
           "seeds": len(own), **{score: _mean(own, score) for score in SCORES}}  # fmt: skip
    for base, others in (("shuffled", shuffled), ("planned", planned)):
        apart = differences(own, others)
        mean, half = interval(apart) if apart else (float("nan"),) * 2
        row |= {f"over_{base}": _number(mean), f"interval_{base}": _number(half),
                f"seeds_{base}": len(apart) or ""}  # fmt: skip
    timed = LINES[name].trained and all(run["step"] for run in (*own, *shuffled))
    return {**row, "time": _number(time(own) / epoch_time(shuffled)) if timed else ""}


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def versus(found: list[Run], line: str) -> str:
    """For each domain, the mean difference in nDCG@10 after two epochs of a line from each that
    needs neither `partition` nor a second model and has run on all domains."""
    domains = domains_of(found)
    of_line = [final(found, domain, line, 2) for domain in domains]
    lines = _head(found)
    for name, other in LINES.items():
        if other.planner == "partition" or "gist" in other.loss or not other.trained:
            continue
        cells = [over(own, final(found, domain, name, 2), "ndcg@10")
                 for own, domain in zip(of_line, domains, strict=True)]  # fmt: skip
        if all(cells):
            lines.append([other.text, *cells])
    return _joined(lines)


def levers(found: list[Run], shares: list[Run]) -> str:
    """A line for each lever of one epoch: its mean differences in nDCG@10 from the recipe of the
    domain, its least time on translation in epochs of shuffled batches, and the share of the
    neighbours of the trained model that its vectors find on each domain."""
    tried = [domain for domain in DOMAINS
             if any(final(found, domain, name) for name in LEVERS)]  # fmt: skip
    head = ["Lever", *map(str.capitalize, tried), "Time", "Neighbours found"]
    lines = [head, ["---"] * len(head)]
    base = epoch_time(final(found, DOMAINS[0], "shuffled"))
    recipe = RECIPES[DOMAINS[0]]
    first = {"hardness": LINES["hardness"], recipe: LINES["half-hardness"],
             "half-hardness": replace(LINES["half-hardness"], text="strength 9")}  # fmt: skip
    for name, line in {**first, **LEVERS}.items():
        bases = {domain: final(found, domain, RECIPES[domain]) for domain in DOMAINS}
        own = bases if name == recipe else {one: final(found, one, name) for one in DOMAINS}
        cells = [over(own[domain], bases[domain], "ndcg@10") for domain in tried]
        if not any(cells) and name != recipe:
            continue
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
    """How far the runs end above others with the same seed and dtype; none for the same runs."""
    if own == base:
        return []
    of_base = {pair(run): run["test"][-1][score] for run in base}
    return [run["test"][-1][score] - of_base[pair(run)] for run in own if pair(run) in of_base]


def pair(run: Run) -> tuple[int, str]:
    """What runs of two lines have in common whose scores are compared: the seed and the dtype."""
    return run["seed"], run.get("dtype", "bfloat16")  # that of most runs, which do not tell it


def over(own: list[Run], base: list[Run], score: str) -> str:
    """The mean difference of runs with the same seed, with its 95% interval, and their number
    unless it is `SEEDS`; empty for the same runs."""
    found = differences(own, base, score)
    if not found:
        return ""
    mean, half = interval(found)
    n = len(found)
    error = f" ± {half:.2f}" if n > 1 else ""
    seeds = "" if n == SEEDS else f" ({n})"
    return f"{mean:+.2f}{error}{seeds}".replace("-", "\N{MINUS SIGN}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--csv", type=Path, help="the file that gets all figures")
    options = parser.parse_args()
    found = runs(options.results)
    if options.csv:
        options.csv.write_text(figures(found))
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
