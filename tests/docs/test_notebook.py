"""The notebook runs, and prints what is stored in it."""

import json
import os
import re
import subprocess
import sys

from .blocks import ROOT
from .shown import require_same

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
CELLS = json.loads(NOTEBOOK.read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def test_its_cells_run():
    """In a process of its own, as the notebook sets the number of threads."""
    program = "\n".join("".join(cell["source"]) for cell in CODE)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=NOTEBOOK.parent, timeout=300, text=True,
        env={**os.environ, "MPLBACKEND": "agg", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    outputs = [output for cell in CODE for output in cell["outputs"]]
    stored = ["".join(output["text"]) for output in outputs if "text" in output]
    require_same("".join(stored), done.stdout, NOTEBOOK.name, "trained")


def test_its_outputs_are_of_one_run():
    assert [cell["execution_count"] for cell in CODE] == [*range(1, len(CODE) + 1)]
    assert not any(output["output_type"] == "error" for c in CODE for output in c["outputs"])


def test_its_links_resolve():
    texts = ("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)#\s]+)", " ".join(texts)):
        assert (NOTEBOOK.parent / target).exists(), target
