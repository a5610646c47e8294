"""The skill for agents has the form that they read; test_pages.py runs its programs."""

import re

import yaml

from .blocks import ROOT

SKILL = ROOT / "skills" / "batchplan" / "SKILL.md"


def test_its_form():
    text = SKILL.read_text()
    _, front, body = text.split("---\n", 2)
    described = yaml.safe_load(front)
    assert described.keys() == {"name", "description"}
    assert described["name"] == SKILL.parent.name
    assert re.fullmatch(r"[a-z0-9-]{1,64}", described["name"])
    assert 0 < len(described["description"]) <= 1024
    assert body.startswith("\n# batchplan\n")
    assert len(text.split()) <= 500
