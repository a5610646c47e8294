"""docs/metrics.md says of every metric which direction is better, twice."""

import re
from pathlib import Path

from batchplan.quality.metrics import judged

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
PARTS = {"false_negatives": "## False negatives", "guard": "## A guard", "coverage": "## Coverage"}


def section(heading):
    return PAGE.partition(heading)[2].partition("\n## ")[0]


def test_the_table_of_what_is_judged():
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \|(.*)\|$", section("## What `check` judges"), re.M)
    assert sorted(name for name, _, _ in rows) == sorted(judged())
    for name, better, needs in rows:
        metric = judged()[name]
        assert better == metric.better, name
        options = re.findall(r"`--([\w-]+)`", needs)
        assert tuple(one.replace("-", "_") for one in options) == metric.needs


def test_the_tables_of_what_is_measured_agree():
    main = PAGE.partition("## False negatives")[0]
    for name, metric in judged().items():
        part, _, key = name.partition(".")
        text = section(PARTS[part]) if part in PARTS else main
        key = name.split(".")[-1] if part in PARTS else part
        rows = re.findall(rf"^\| [^|]*`{key}`.*\| ([\w ]+)\|$", text, re.M)
        assert rows, name
        assert rows[0].strip() == metric.better, name
