"""The workflow of docs/ci and the action of this repository: their steps, as GitHub runs them."""

import json
import os
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from .blocks import ROOT

WORKFLOW = ROOT / "docs" / "ci" / "batchplan.yml"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
SHELLS = {"bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"], "python": ["python"]}


class GitHub(BaseHTTPRequestHandler):
    """The part of GitHub's API that has the comments of pull request 7."""

    comments: dict[int, str]

    def answer(self, content):
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]

    def do_GET(self):
        page = int(re.search(r"[?&]page=(\d+)", self.path)[1])
        shown = [*self.server.comments.items()][100 * (page - 1) : 100 * page]
        self.answer([{"id": number, "body": body} for number, body in shown])

    def do_POST(self):
        self.server.comments[1000 + len(self.server.comments)] = self.body()
        self.answer({})

    def do_PATCH(self):
        self.server.comments[int(self.path.rpartition("/")[2])] = self.body()
        self.answer({})

    def log_message(self, *_):
        pass


@pytest.fixture
def github():
    with ThreadingHTTPServer(("127.0.0.1", 0), GitHub) as server:
        server.asked, server.comments = [], dict.fromkeys(range(150), "of a person")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def run(tmp_path, programs, github):
    """Runs the script of a step in a clone; its exit status."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")

    def run(step, **variables):
        script = tmp_path / "script"
        script.write_text(step["run"])
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
            "GITHUB_REPOSITORY": "someone/something",
            "CUDA_VISIBLE_DEVICES": "",
            "no_proxy": "127.0.0.1",
            **variables,
        }
        command = [*SHELLS[step.get("shell", "bash")], script]
        return subprocess.run(command, cwd=tmp_path, env=environment, timeout=120).returncode

    return run


def steps(job):
    return {step["name"]: step for step in job["steps"] if "name" in step}


def act(run, given):
    """Run the action with inputs, as in a pull request; the status of its check."""
    known = {f"inputs.{name}": one.get("default", "") for name, one in ACTION["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in given.items()}
    known |= {"github.event.number": "7", "inputs.token": "secret"}

    def variables(step):
        return {name: known[text.strip("${} ")] for name, text in step.get("env", {}).items()}

    named = steps(ACTION["runs"])
    assert list(named) == ["Install", "Check", "Comment"]
    assert named["Install"]["run"] == 'pip install "$GITHUB_ACTION_PATH"'  # a wheel: see wheel.py
    assert not any("${{" in step["run"] for step in named.values())  # no input is part of a script
    status = run(named["Check"], **variables(named["Check"]))
    if known["inputs.comment"] == "true":
        assert run(named["Comment"], **variables(named["Comment"])) == 0
    return status


def test_the_workflow_and_its_action_run(run, github, tmp_path):
    text = WORKFLOW.read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    named = steps(job)
    plan, given = named["Plan"], named["Check"]["with"]
    assert named["Check"]["uses"] == "./"
    assert named["Install"]["run"] == "pip install ."
    assert given.keys() <= ACTION["inputs"].keys()
    assert given.keys() >= {name for name, one in ACTION["inputs"].items() if one.get("required")}

    assert run(plan) == 0
    commented = "".join(line[1:] for line in text.splitlines() if line.startswith("#   "))
    assert run({"run": commented}) == 0  # makes the baseline
    assert (tmp_path / "baseline.json").exists()
    assert act(run, given) == 0
    uploaded = job["steps"][-1]["with"]["path"].split()
    assert all((tmp_path / name).exists() for name in uploaded)
    assert ElementTree.parse(tmp_path / "check.xml").getroot().get("tests") == "3"
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### plan.npy: all 3 gates hold")
    assert github.comments[1150] == f"<!-- batchplan check -->\n{summary}"
    assert {token for _, _, token in github.asked} == {"Bearer secret"}
    assert github.asked[-1][:2] == ("POST", "/repos/someone/something/issues/7/comments")

    # The same job stops at a plan that is worse, and its comment is replaced.
    assert run({"run": plan["run"].replace("partition", "random") + " --force"}) == 0
    assert act(run, given) == 1
    assert len(github.comments) == 151
    assert "plan.npy: 2 of 3 gates failed" in github.comments[1150]
    assert github.asked[-1][:2] == ("PATCH", "/repos/someone/something/issues/comments/1150")


def test_inputs_of_the_action_are_no_shell(run, github, tmp_path):
    Path(tmp_path / "plan with spaces.npy").touch()
    given = {
        "plan": "$(touch owned).npy", "embeddings": "*.parquet `touch owned`", "comment": "true",
        "fail-under": "hardness=1;touch owned",
    }  # fmt: skip
    assert act(run, given) == 3
    assert not (tmp_path / "owned").exists()
    assert len(github.comments) == 150  # nothing to say
