"""Keys in a URL: no command shows or stores them, whichever of its options has it.

Here nothing is behind most URLs; tests/ray has a server.
"""

import json
import subprocess
import sys

import pytest

from batchplan.plans import Plan
from tests.data.test_urls import url as readable  # noqa: F401
from tests.every_option import COMMANDS, keys_in, lines, write_files

KEYS = "USER-KEY", "PASSWORD-KEY", "SIGNATURE-KEY"
LONG = 300 * "a"  # more than a file name may have
URLS = {
    "escaped": "foo://USER-KEY:PASSWORD-KEY@host/{}?X-Signature=SIGNATURE-KEY",
    "odd": f"s3://USER-KEY:{LONG}/b ?PASSWORD-KEY#@c\n@host/{{}}?{LONG} SIGNATURE-KEY/x.npy",
}
GROUPED = "--group-column", "group"


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", URLS)
def test_no_option_shows_or_stores_keys(name, kind, run, folder):
    write_files(folder)
    for option, words in lines(name, URLS[kind].format):
        result = run(*words)
        assert keys_in(KEYS, [result.stdout, result.stderr], folder) == [], (words, result.output)
        # Where neither data nor plan have ids, their column is not looked for.
        assert result.exit_code != 0 or option == "id_column", words


@pytest.mark.parametrize(
    "words",
    [
        ["s3://USER-KEY:PASSWORD-KEY@host/x.npy?SIGNATURE-KEY"],
        ["inspect", "--s3://USER-KEY:=PASSWORD-KEY@host/x.npy?SIGNATURE-KEY"],
        ["inspect", "-os3://USER-KEY:PASSWORD-KEY@host/x.npy"],
        ["warmup", "s3://USER-KEY:PASSWORD-KEY@host/x.npy"],
        ["compare", "x.npy", "--planners", "s3://USER-KEY,:PASSWORD-KEY,b@host/x.npy"],
        ["embed", "model", "x.parquet", "--columns", f"s3://{LONG}USER-KEY,:PASSWORD-KEY@host/x"],
        ["report", "plan.npy", "x.npy", "--text-columns", "s3://USER-KEY,:PASSWORD-KEY@host/x"],
    ],
)
def test_urls_in_the_wrong_place_show_no_keys(words, run, folder):
    """The parser, or a list of names, cuts them in pieces that end no user."""
    result = run(*words)
    assert result.exit_code in (2, 3)
    assert keys_in(KEYS, [result.output], folder) == []


def test_the_traceback_of_a_bug_shows_no_keys():
    """Of the error that escaped, and of the one that it followed."""
    script = (
        "import sys; from batchplan.cli.process import run\n"
        "def work():\n"
        "    try: raise KeyError(sys.argv[1])\n"
        "    except KeyError as error: raise RuntimeError(f'bug {sys.argv[1]}') from error\n"
        "sys.exit(run(work))"
    )
    words = [sys.executable, "-c", script, URLS["odd"].format("x")]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Traceback" in ended.stderr
    assert "RuntimeError: bug s3://" in ended.stderr
    assert keys_in(KEYS, [ended.stderr]) == []


def test_refined_plans_hold_no_keys(done, folder, readable):  # noqa: F811
    write_files(folder)
    table = readable("pairs.parquet")
    more = ["--label-table", table, *GROUPED, "--source-column", "group", "--verbose"]
    result = done("refine", "plan.npy", readable("pairs.parquet"), *more, "-o", "refined.npy")
    refined, shown = Plan.load("refined.npy"), []
    for suffix in (".npy", ".parquet", ".npz", ".jsonl", ".txt"):
        refined.save(f"again{suffix}")
        shown.append(done("inspect", f"again{suffix}", "--json").stdout)
        label_table = json.loads(shown[-1])["options"]["label_table"]
        assert label_table == "mock://host/pairs.parquet"
    assert keys_in(("password", "secret"), [result.output, *shown], folder) == []


def test_plans_of_others_show_no_keys(done, folder):
    """An older version, and other tools, may have stored them."""
    write_files(folder)
    sidecar = folder / "plan.npy.json"
    document = json.loads(sidecar.read_text())
    document["options"]["label_table"] = [URLS["odd"].format("x")]
    document["planner"] = URLS["escaped"].format("x")
    sidecar.write_text(json.dumps(document))
    (folder / "written").mkdir()
    for line in (
        "inspect plan.npy",
        "inspect plan.npy --json",
        "evaluate plan.npy pairs.parquet",
        "report plan.npy pairs.parquet -o written/page.html",
        "materialize plan.npy pairs.parquet -o written/data",
        "refine plan.npy pairs.parquet -o written/refined.npy",
    ):
        result = done(*line.split())
        assert keys_in(KEYS, [result.output], folder / "written") == [], line
