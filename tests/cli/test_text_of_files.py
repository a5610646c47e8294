"""Whatever strings the files hold that a command reads, it prints and writes harmless text.

Plans, baselines and settings lie in repositories: a pull request may change them, and CI prints
what they say into a log that its runner reads for commands.
"""

import base64
import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

OWNED = "x\n::error::owned\n\x1b[2J\u202e\u2066##[error]\x00\x7f"
PIECES = [
    "\n::error::owned\n", "  ::", "##[error]", "##vso[task.done]", "\x1b]0;title\x07", "\x1b[31m",
    "\x00", "\x07", "\x7f", "\r", "\t", "\x85", "\u2028", "\u202e", "\u2066", "\ufeff", "\ufffe",
    "\ud800", "\udcff", "<script>", "]]>", "&", "|", "`", "[red]", "$x$", "\\", "é", "日", "a", " ",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=6).map("".join)
FEW = ("--random-trials", 2)
GATE = ("--fail-under", "gap_reduction=2")

fixture_is_kept = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "10")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def harmless(text):
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)
        assert not re.match(r"\s*::", line), line
        assert not re.search(r"##\w*\[", line), line


@pytest.fixture
def said(run):
    """Run a command; its exit status, once all that it said proved harmless."""

    def said(*arguments, statuses=(0, 1, 3)):
        result = run(*arguments)
        harmless(result.stdout)
        harmless(result.stderr)
        assert result.exit_code in statuses, result.output
        if result.exit_code == 3:
            assert len(result.stderr.splitlines()) == 1
        return result

    return said


def places(document, place=()):
    """Where strings are: those of values, and of keys that we do not know."""
    if isinstance(document, str):
        yield place
    parts = document.items() if isinstance(document, dict) else ()
    for name, inner in parts:
        yield (*place, name, None)  # the key itself
        yield from places(inner, (*place, name))


def put(document, place, text):
    """A copy with the string at the place replaced."""
    made = copy.deepcopy(document)
    *path, last = place[:-1] if place[-1] is None else place
    inner = made
    for name in path:
        inner = inner[name]
    if place[-1] is None:
        inner[text] = inner.pop(last)
    else:
        inner[last] = text
    return made


@pytest.fixture
def planned(npy, done):
    """x.npy and y.npy, plan.npy, its summary plan.json and its baseline.json."""
    shown = done("random", *npy, "-b", 8, "--json")
    Path("plan.json").write_text(shown.stdout)
    done("check", "plan.npy", *npy, *FEW, "--write-baseline", "baseline.json")
    return ["plan.npy", *npy]


@fixture_is_kept
@given(st.data())
def test_metadata(planned, said, data):
    path = Path("plan.npy.json")
    if not Path("kept").exists():
        Path("kept").write_bytes(path.read_bytes())
    document = json.loads(Path("kept").read_text())
    document["planner"] = data.draw(TEXT)
    document["options"] |= {data.draw(TEXT): [data.draw(TEXT), {data.draw(TEXT): 1}]}
    document["versions"] |= {data.draw(TEXT): data.draw(TEXT)}
    document["metrics"] |= {data.draw(TEXT): data.draw(TEXT)}
    if data.draw(st.booleans()):
        place = data.draw(st.sampled_from(list(places(document))))
        document = put(document, place, data.draw(TEXT))
    path.write_text(json.dumps(document))
    status = said("inspect", "plan.npy").exit_code
    assert said("inspect", "plan.npy", "--json").exit_code == status
    command = data.draw(st.sampled_from([["evaluate"], ["evaluate", "--json"], ["check", *GATE]]))
    # Data of another fingerprint is refused as well.
    assert said(command[0], *planned, *FEW, *command[1:]).exit_code in (status, 1, 3)


@fixture_is_kept
@given(st.data())
@example(None)
def test_baseline(planned, said, data):
    document = json.loads(Path("baseline.json").read_text())
    if data is None:
        document["fingerprint"] = OWNED
    else:
        place = data.draw(st.sampled_from([("fingerprint",), *places(document)]))
        document = put(document, place, data.draw(TEXT))
    Path("b.json").write_text(json.dumps(document))
    formats = ["table", "json", "markdown"]
    for style in formats if data is None else [data.draw(st.sampled_from(formats))]:
        written = ["--format", style, "--junit", "check.xml", "--force"]
        shown = said("check", *planned, *FEW, "--baseline", "b.json", *GATE, *written)
        assert shown.exit_code in (1, 3)
        if shown.exit_code == 1:
            ElementTree.parse("check.xml")
        if data is None:
            assert "fingerprint x\\n::error::owned\\n\\x1b[2J\\u202e\\u2066" in shown.stderr


@fixture_is_kept
@given(TEXT)
@example(OWNED)
def test_columns(parquet, pairs, said, text):
    name = text.encode(errors="ignore").decode()
    assume(name)
    lists = {side: pa.array(list(rows)) for side, rows in zip(("x", name), pairs, strict=True)}
    kinds = {f"{name} kind": [f"{name} {i % 3}" for i in range(len(pairs[0]))]}
    pq.write_table(pa.table({"id": [name] * 48, **lists, **kinds}), "named.parquet")
    pq.write_table(pa.table({**lists, **kinds}), "other.parquet")
    Path("plan.txt").write_text("\n".join(map(str, range(48))))
    assert said("inspect", "named.parquet", statuses=[3])  # the ids are all the same
    said("inspect", "other.parquet", "--x-column", "z", statuses=[3])
    said("inspect", "other.parquet", "--x-column", f"{name} kind", statuses=[3])
    labelled = ("other.parquet", "-b", 8, *FEW, "--group-column", f"{name} kind")
    said("evaluate", "plan.txt", *labelled, statuses=[0])
    said("evaluate", "plan.txt", *labelled, "--json", statuses=[0])


@fixture_is_kept
@given(TEXT, st.integers(0, 5))
def test_settings(npy, said, text, form):
    name = json.dumps(text)
    forms = ["{} = 1", "[{}]", "[random]\n{} = 1", "[random]\nbatch_size = {}", "a = {}",
             "[other]\nplanner = {}"]  # fmt: skip
    Path("s.toml").write_text(forms[form].format(name))
    said("compare", *npy, "--settings", "s.toml", statuses=[3])


def test_deep_settings(npy, said):
    for text in ("[random]\na = " + "[" * 5000, ".".join("a" * 5000) + " = 1"):
        Path("s.toml").write_text(text)
        shown = said("compare", *npy, "--settings", "s.toml", statuses=[3])
        assert "s.toml: is not a TOML file: more than 64 levels" in shown.stderr


def test_half_a_character_in_metadata(planned, said, snapshot):
    path = Path("plan.npy.json")
    path.write_text(path.read_text().replace('"random"', r'"\ud800"'))
    before = snapshot()
    for command in (["report", *planned[:1], "x.npy", "--single"], ["inspect", "plan.npy"]):
        shown = said(*command, statuses=[3])
        assert "plan.npy.json: metadata is not JSON" in shown.stderr
        assert "surrogates not allowed" in shown.stderr
    assert snapshot() == before


def test_a_report(planned, parquet, said):
    """Of everything at once: metadata and a column; the page, its pictures and the log."""
    text = OWNED.replace("\u202e", "\u202e日")
    path = Path("plan.npy.json")
    document = json.loads(path.read_text())
    document |= {"planner": text, "options": {text: text}, "metrics": {text: [text]}}
    path.write_text(json.dumps(document))
    pq.write_table(pa.table({text: [i % 3 for i in range(48)]}), "kinds.parquet")
    labels = ("--group-column", text, "--label-table", "kinds.parquet")
    said("report", *planned[:1], parquet, *FEW, *labels, "--png", "png", statuses=[0])
    page = Path("report.html").read_text("utf-8")
    harmless(page)
    for one in re.findall(r'base64,(.*?)"', page):
        ElementTree.fromstring(base64.b64decode(one))
    assert page.count(r"x\n::error::owned\n\x1b[2J\u202e日\u2066\x23#[error]\x00\x7f") > 4


def test_a_warning_is_one_line(pairs):
    """NumPy warns of files that Python 2 wrote."""
    np.save("x.npy", pairs[0])
    content = Path("x.npy").read_bytes()
    assert b"(48, 8), }   " in content
    Path("x.npy").write_bytes(content.replace(b"(48, 8), }   ", b"(48L, 8L), } ", 1))
    command = [
        sys.executable,
        "-P",
        "-m",
        "batchplan",
        "random",
        "x.npy",
        "--single",
        "-b",
        "8",
        "-q",
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert re.fullmatch(r"warning: Reading `\.npy` .* Python 2\..*\n", ran.stderr)
