"""What a release states in several places is the same in all of them."""

import re
import runpy
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

import batchplan
from batchplan.extras import DISTRIBUTION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
ADDRESS = "https://github.com/somebody/planner"
SYSTEMS = {
    "ubuntu-24.04": "Linux x86-64",
    "ubuntu-24.04-arm": "Linux arm64",
    "macos-15": "macOS arm64",
}


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


def steps(workflow):
    """All commands of a workflow."""
    jobs = WORKFLOWS[workflow]["jobs"].values()
    return [step["run"] for job in jobs for step in job.get("steps", []) if "run" in step]


def test_workflows_run_what_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in [one for name in WORKFLOWS for one in steps(name)]:
        program, first, *_ = shlex.split(command)
        assert program in ("make", "python")
        assert first in targets if program == "make" else (ROOT / first).is_file()


def test_workflows_test_what_ci_does():
    ours = (ROOT / ".ci" / "run").read_text()
    assert set(re.findall(r"^make .*", ours, re.MULTILINE)) == set(steps("tests"))


def test_the_readme_states_the_platforms_that_workflows_test():
    matrix = WORKFLOWS["tests"]["jobs"]["test"]["strategy"]["matrix"]
    install = re.search(r"^## Install\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)[1]
    versions = matrix["python"]
    assert f"Python {versions[0]} to {versions[-1]}" in install
    assert [f"Programming Language :: Python :: {one}" for one in versions] == [
        one for one in PROJECT["classifiers"] if "Python ::" in one
    ]
    for one in matrix["os"]:
        assert SYSTEMS[one] in install
    assert matrix["os"] == [*SYSTEMS]


def test_only_the_job_that_publishes_may_sign_in_to_the_index():
    jobs = WORKFLOWS["release"]["jobs"]
    able = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert able == ["publish"]
    assert WORKFLOWS["release"]["permissions"] == {"contents": "read"}
    assert not any("run" in step for step in jobs["publish"]["steps"])


def test_a_release_has_absolute_links_and_addresses(tmp_path):
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    release = runpy.run_path(str(ROOT / ".github" / "release.py"))["main"]
    tag = f"v{PROJECT['version']}"
    release(ADDRESS, tag, tmp_path)
    readme = (tmp_path / "README.md").read_text()
    links = [*re.findall(r"\]\(([^)]+)\)", readme), *re.findall(r'src="([^"]+)"', readme)]
    assert len(links) > 20
    assert any(link.endswith(".png") for link in links)
    own = [link.removeprefix(ADDRESS) for link in links if link.startswith(ADDRESS)]
    assert all(link.startswith("https://") for link in links)
    for link in own:
        kind, found, path = re.fullmatch(r"/(blob|raw)/([^/]+)/([^#]+)(?:#.*)?", link).groups()
        assert found == tag
        assert (ROOT / path).is_file()
        assert (kind == "raw") == path.endswith((".png", ".svg"))
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project.pop("urls")["Documentation"] == "https://somebody.github.io/planner/"
    assert project == PROJECT
    with pytest.raises(SystemExit, match="expected v"):
        release(ADDRESS, "v9.9.9", tmp_path)


def test_the_name_on_the_index():
    assert PROJECT["name"] == DISTRIBUTION
    for name, extra in PROJECT["optional-dependencies"].items():
        assert not any(one.startswith("batchplan[") for one in extra), name
