"""What a release states in several places is the same in all of them."""

import re
from pathlib import Path

import yaml

import batchplan

ROOT = Path(__file__).parents[1]


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    newest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {citation["version"], project[1], newest[1]} == {batchplan.__version__}


def test_templates_can_be_parsed():
    templates = list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert {path.stem for path in templates} == {"bug_report", "feature_request", "config"}
    for path in templates:
        assert yaml.safe_load(path.read_text())


def test_links_of_the_pages_for_contributors():
    for page in (ROOT / ".github").glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
