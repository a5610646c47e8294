"""What a release states in several places is the same in all of them."""

import re
import tomllib
from pathlib import Path

import yaml

import batchplan

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {citation["version"], PROJECT["version"], newest[1]} == {batchplan.__version__}


def test_the_oldest_dependencies_are_those_that_are_permitted():
    """All but torch, of which constraints-oldest.txt says why."""
    extras = PROJECT["optional-dependencies"]
    permitted = {
        name: oldest
        for group in (PROJECT["dependencies"], extras["report"], extras["test"])
        for name, oldest in re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(group), re.MULTILINE)
    }
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert permitted.keys() == tested.keys()
    for name in permitted.keys() - {"torch"}:
        assert re.fullmatch(rf"{re.escape(permitted[name])}(\.0)*", tested[name]), name


def test_templates_can_be_parsed():
    templates = list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert {path.stem for path in templates} == {"bug_report", "feature_request", "config"}
    for path in templates:
        assert yaml.safe_load(path.read_text())


def test_links_of_the_pages_for_contributors():
    for page in (ROOT / ".github").glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
