"""docs/metrics.md says which direction is better of every metric, and which need an option."""

import re
from pathlib import Path

from batchplan.quality.metrics import judged

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
PARTS = {"guard": "## A guard", "coverage": "## Coverage", "answers": "### Known answers"}

NEED_OPTIONS = "guard"


def section(heading):
    return PAGE.partition(heading)[2].partition("\n## ")[0]


def test_the_table_of_what_parts_need():
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section("## What `check` judges"), re.M)
    options = [part for part, needs in rows if "`--" in needs]
    needing = [name.rpartition(".")[0] for name in judged() if name.startswith(NEED_OPTIONS)]
    assert options == [*dict.fromkeys(needing)]


def test_the_tables_of_what_is_measured_agree():
    main = PAGE.partition("## A guard")[0]
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
