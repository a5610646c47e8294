"""`demo`: the sample, a plan, the verdict and a page, from nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

import batchplan

FILES = {"pairs.parquet", "plan.npy", "plan.npy.json", "page.html"}


def test_a_demonstration_needs_no_data(folder, done):
    shown = done("demo")
    assert {path.name for path in Path("batchplan-demo").iterdir()} == FILES
    plan = batchplan.Plan.load("batchplan-demo/plan.npy")
    data = batchplan.load_embeddings("batchplan-demo/pairs.parquet")
    assert plan.metadata.fingerprint == data.fingerprint
    assert pq.read_metadata("batchplan-demo/pairs.parquet").num_rows == 2048
    assert "\nverdict          train on this one, because " in shown.stdout
    assert shown.stderr.startswith("takes about 10 seconds, and 30 more in a new installation")
    assert shown.stderr.endswith("open batchplan-demo/page.html in a browser\n")
    # What it shows runs alone, on other data too.
    lines = re.findall(r"^\$ batchplan (.*)$", shown.stderr, re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["plan", "evaluate", "report"]
    before = Path("batchplan-demo/plan.npy").read_bytes()
    done(*lines[0].split(), "--force")
    assert Path("batchplan-demo/plan.npy").read_bytes() == before


def test_it_replaces_nothing_unasked(folder, refused, run):
    Path("mine").mkdir()
    Path("mine/page.html").write_text("mine")
    refused("demo", "mine", parts=["mine/page.html: exists already", "--force"])
    Path("file").touch()
    refused("demo", "file", parts=["file: is a file, expected a folder"])
    refused("demo", "none/demo", parts=["none does not exist"])
    assert run("demo", "mine", "--force").exit_code == 0
    assert {path.name for path in Path("mine").iterdir()} == FILES


def test_without_the_packages_of_the_page(folder):
    code = "import sys; sys.modules['jinja2'] = None; from batchplan.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True)
    assert done.returncode == 4
    assert "\nverdict " in done.stdout
    assert "batchplanner[report]" in done.stderr.splitlines()[-1]
