"""The workflow of docs/ci: what it runs, on the sample data."""

import os
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
import yaml

from .blocks import ROOT
from .test_pages import NOT_RUN

WORKFLOW = ROOT / "docs" / "ci" / "batchplan.yml"


@pytest.fixture
def shell(tmp_path, programs):
    """Runs a script in a clone, as GitHub does; its exit status."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")

    def shell(script):
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=tmp_path, env=environment, timeout=120).returncode

    return shell


def test_the_workflow_runs(shell, tmp_path):
    text = WORKFLOW.read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    names = [step.get("name") for step in job["steps"]]
    plan, check = (job["steps"][names.index(name)]["run"] for name in ("Plan", "Check"))
    others = [step["run"] for step in job["steps"] if "run" in step and step["name"] == "Install"]
    assert all(run.startswith(NOT_RUN) for run in others)
    assert len(others) + 2 == sum("run" in step for step in job["steps"])

    assert shell(plan) == 0
    commented = "".join(line[1:] for line in text.splitlines() if line.startswith("#   "))
    assert shell(commented.replace("\\", "")) == 0  # makes the baseline
    assert (tmp_path / "baseline.json").exists()
    assert shell(check) == 0
    uploaded = job["steps"][-1]["with"]["path"].split()
    assert all((tmp_path / name).exists() for name in uploaded)
    assert ElementTree.parse(tmp_path / "check.xml").getroot().get("tests") == "3"
    assert (tmp_path / "summary.md").read_text().startswith("### plan.npy: all 3 gates hold")

    # The same job stops at a plan that is worse.
    assert shell(plan.replace("partition", "random") + " --force") == 0
    assert shell(check.replace("check.xml", "worse.xml")) == 1
