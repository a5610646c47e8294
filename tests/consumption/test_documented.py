"""docs/consumption.md lists every cause that `verify-consumption` names."""

import re
from pathlib import Path

from batchplan.consumption.causes import CAUSES

PAGE = (Path(__file__).parents[2] / "docs" / "consumption.md").read_text()


def test_the_table_of_causes():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)[2:]
    assert rows == [(cause.name, cause.sentence) for cause in CAUSES]
