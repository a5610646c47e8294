"""Messages name pages of the documentation where their reader can open them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SAY = """
import sys
from batchplan.errors import InputError
from batchplan.pages import linked
print(InputError("convert it as docs/formats.md shows"))
print(linked("rules: docs/planners.md#plan, docs/metrics.md."), linked("no page"))
from batchplan.__main__ import main
sys.argv = ["batchplan", "evaluate", "--help"]
main()
"""


def said(folder, *urls):
    """What a package says whose metadata, in a folder, have these lines."""
    about = folder / "batchplanner-9.dist-info"
    about.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", "Name: batchplanner", "Version: 9", *urls]
    (about / "METADATA").write_text("\n".join(lines) + "\n")
    code = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]\n{SAY}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_release_names_addresses(tmp_path):
    urls = [
        "Project-URL: Source, https://example.org/source",
        "Project-URL: Documentation, https://example.org/guide/",
    ]
    text = said(tmp_path / "released", *urls)
    first, second = text.splitlines()[:2]
    assert first == "convert it as https://example.org/guide/formats.html shows"
    page = "https://example.org/guide"
    assert second == f"rules: {page}/planners.html#plan, {page}/metrics.html. no page"
    assert "docs/" not in text
    assert f"{page}/metrics.html" in "".join(text.split())


def test_a_clone_names_files(tmp_path):
    text = said(tmp_path / "cloned")
    assert text.splitlines()[0] == "convert it as docs/formats.md shows"
    assert "docs/metrics.md" in text
