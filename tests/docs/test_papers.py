"""The table of what the papers define: each command, option, metric, function and test exists."""

import ast
import csv
import re
from collections import Counter
from functools import cache
from importlib import import_module

import pytest

from batchplan.planners.table import PLANNERS
from batchplan.quality.coupons import NegativesEvaluation
from batchplan.quality.metrics import METRICS

from .blocks import ROOT

PAGE, CLI = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("paper_planners", "cli"))
FIGURES = {*METRICS, *NegativesEvaluation.__dataclass_fields__}
TABLE = PAGE.partition("## Where each part of the papers is\n")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\|.*\|$", TABLE, re.M)[2:]
]


@cache
def functions_of(path):
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def exists(words):
    """Whether a command with options, a metric or a name of the library is there."""
    first, *others = words.split()
    if first in PLANNERS:
        fields = PLANNERS[first].options.__dataclass_fields__
        options = [word[2:].replace("-", "_") for word in others if word.startswith("--")]
        return all(option in fields for option in options)
    if f"## batchplan {first}\n" in CLI:
        return all(word in CLI for word in others)
    module, _, name = first.rpartition(".")
    if module.startswith(("batchplan", "tests")):
        return hasattr(import_module(module), name)
    return any(figure == first or figure.startswith(f"{first}.") for figure in FIGURES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_is_named_exists(row):
    _, _, here, _, tests = row
    for words in re.findall(r"`([^`]+)`", here):
        assert exists(words), words
    named = re.findall(r"`([^`]+)::(\w+)`", tests)
    assert named or here == "none"
    for path, name in named:
        assert name in functions_of(path), f"{path}::{name}"


def test_all_papers_are_there():
    papers = {row[0].split(",")[0] for row in ROWS}
    assert papers == {"GCBS", "BatchSampler", "Mini-batch", "SCNS"}


def test_claims_that_do_not_wholly_hold_are_on_the_page():
    with (ROOT / "docs" / "claims.csv").open(newline="") as file:
        claims = list(csv.DictReader(file))
    text = PAGE.partition("## Claims of the papers, tested again\n")[2]
    shown = []
    for part in text.split("\n### ")[1:]:
        for line in re.findall(r"^\| (?!Where |---)(.*) \|$", part, re.M):
            cells = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line).split(" | ")
            shown.append([part.partition("\n")[0], *cells])
    assert shown == [list(claim.values()) for claim in claims if claim["verdict"] != "holds"]
    verdicts = Counter(claim["verdict"] for claim in claims)
    told = re.search(
        r"Of (\d+) claims (\d+) hold, (\d+) hold in part, (\d+) does not hold and (\d+) was not",
        text,
    )
    names = "holds", "in part", "does not hold", "not run"
    assert list(map(int, told.groups())) == [len(claims), *(verdicts[name] for name in names)]
