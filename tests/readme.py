"""``make test-readme``: what the README installs above its program runs that program, as printed.

Usage: python tests/readme.py ENVIRONMENT

The line is run with ``pip`` of the new environment and the versions of constraints.txt, the program
with a small model and pairs of texts.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SHOWN = re.compile(
    r"```sh\n(pip install [^\n]*)\n```\n\n```python frameworks\n(.*?)```", re.DOTALL
)
_INPUTS = """
from tests.frameworks.texts import load_model, pairs, save_model
save_model("base", 150)
load_model("base").save("model")
pairs(150).to_parquet("pairs.parquet")
"""


def main(environment: Path) -> None:
    ((line, program),) = _SHOWN.findall((ROOT / "README.md").read_text())
    venv.create(environment, clear=True, with_pip=True)
    path = os.pathsep.join([str(environment.resolve() / "bin"), os.environ["PATH"]])
    asked = {"PATH": path, "PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_QUIET": "1"}
    subprocess.run(line, shell=True, check=True, cwd=ROOT, env={**os.environ, **asked})
    with tempfile.TemporaryDirectory() as folder:
        run = [environment.resolve() / "bin" / "python", "-c"]
        others = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        subprocess.run([*run, _INPUTS], check=True, cwd=folder, env=others)
        del others["PYTHONPATH"]
        for _ in range(2):  # a second run has a folder of plans of its own
            subprocess.run([*run, program], check=True, cwd=folder, env=others)
        runs = [list(own.glob("*.npz")) for own in Path(folder, "run", "_plans").iterdir()]
        if not Path(folder, "trained").is_dir() or list(map(len, runs)) != [3, 3]:
            sys.exit(f"README.md: its program planned {runs} in two runs")
    print(f"{line}: its program ran twice")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
