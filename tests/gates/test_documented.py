"""docs/metrics.md says of every metric which direction is better, and what `check` needs for it."""

import re
from pathlib import Path

from batchplan.quality.metrics import judged

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
PARTS = {"false_negatives": "## False negatives", "guard": "## A guard", "coverage": "## Coverage"}


def section(heading):
    return PAGE.partition(heading)[2].partition("\n## ")[0]


def test_the_table_of_what_parts_need():
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section("## What `check` judges"), re.M)
    assert rows
    told = {
        part: tuple(one.replace("-", "_") for one in re.findall(r"`--([\w-]+)`", needs))
        for part, needs in rows
    }
    for name, metric in judged().items():
        assert metric.needs == told.get(name.rpartition(".")[0], ()), name


def test_the_tables_of_what_is_measured_agree():
    main = PAGE.partition("## False negatives")[0]
    for name, metric in judged().items():
        part, _, key = name.partition(".")
        text = section(PARTS[part]) if part in PARTS else main
        key = name.split(".")[-1] if part in PARTS else part
        rows = re.findall(rf"^\| [^|]*`{key}`.*\| ([\w ]+)\|$", text, re.M)
        assert rows, name
        assert rows[0].strip() == metric.better, name


def test_what_has_a_direction_is_judged():
    keys = {key for name in judged() for key in name.split(".")}
    rows = re.findall(r"^\| `(\w+)` \|.*\| (?:higher|lower) \|$", PAGE, re.M)
    assert rows
    assert set(rows) <= keys
