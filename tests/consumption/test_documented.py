"""docs/frameworks.md lists every cause that `verify-consumption` names."""

import re
from pathlib import Path

from batchplan.consumption.causes import CAUSES

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()


def test_the_table_of_causes():
    section = PAGE.partition("## Prove it")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.M)[2:]
    assert rows == [(cause.name, cause.sentence) for cause in CAUSES]
