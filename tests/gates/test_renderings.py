"""Verdicts as other programs read them."""

import json
import re
from html import unescape
from xml.etree import ElementTree

from batchplan.gates import Judgement, fail_over, fail_under, judge, junit, markdown

NASTY = """a|b`c`<i>&"'*_[x](y) ]]>é.npy"""


def judgement(plan="plan.npy", warnings=()):
    gates = [fail_under("gap_reduction=0.4"), fail_over("gap=2"), fail_under("oracle_share=1")]
    values = {"gap_reduction": 0.5, "gap": 3.0, "oracle_share": 0.25}
    return Judgement(plan, "2 batches", judge(gates, values), warnings)


def test_counts():
    one = judgement()
    assert (one.passed, one.failures, one.outcome) == (False, 2, "2 of 3 gates failed")
    held = Judgement("p", "", one.verdicts[:1])
    assert (held.passed, held.failures, held.outcome) == (True, 0, "the gate holds")
    assert Judgement("p", "", ()).outcome == "no gates"
    assert Judgement("p", "", one.verdicts[:1] * 2).outcome == "all 2 gates hold"


def test_junit_has_a_case_for_each_gate():
    for plan in ("plan.npy", NASTY):
        text = junit(judgement(plan, (f"{NASTY} is old",)))
        root = ElementTree.fromstring(text.encode())
        assert root.tag == "testsuites"
        (suite,) = root
        counts = {"tests": "3", "failures": "2", "errors": "0", "skipped": "0"}
        assert suite.attrib == {"name": f"batchplan check {plan}", **counts}
        assert root.attrib == {"name": "batchplan check", **counts}
        cases = suite.findall("testcase")
        assert [case.get("name") for case in cases] == [
            "--fail-under gap_reduction=0.4",
            "--fail-over gap=2",
            "--fail-under oracle_share=1",
        ]
        assert {case.get("classname") for case in cases} == {"batchplan.check"}
        failures = [case.find("failure") for case in cases]
        assert failures[0] is None
        assert failures[1].get("message") == "gap is 3, required is at most 2"
        assert plan in failures[1].text
        assert cases[0].findtext("system-out") == "gap_reduction is 0.5, required is at least 0.4"
        assert suite.findtext("system-err") == f"{NASTY} is old"
        assert "time" not in {name for one in root.iter() for name in one.attrib}


def test_junit_without_gates_is_still_a_suite():
    root = ElementTree.fromstring(junit(Judgement("p", "", ())).encode())
    assert root.get("tests") == root[0].get("tests") == "0"


def test_markdown_has_a_row_for_each_gate():
    text = markdown(judgement())
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `gap_reduction` | 0.5 |  | at least 0.4 | ok |",
        "| `gap` | 3 |  | at most 2 | **FAILED** |",
        "| `oracle_share` | 0.25 |  | at least 1 | **FAILED** |",
    ]
    assert text.startswith("### plan.npy: 2 of 3 gates failed\n\n2 batches\n\n| Metric |")
    assert text.endswith("|\n")
    assert "| Metric" not in markdown(Judgement("p", "", ()))


def test_markdown_takes_names_as_they_are():
    text = markdown(judgement(NASTY, (NASTY,)))
    heading = text.splitlines()[0].removeprefix("### ").removesuffix(": 2 of 3 gates failed")
    # A backslash before punctuation stands for the punctuation alone (CommonMark, section 2.4).
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", heading) == NASTY
    assert not re.search(r"(?<!\\)[|`<*_\[&]", heading)
    assert unescape(NASTY) == NASTY
    assert f"Warning: {heading}\n" in text


def test_neither_holds_what_no_log_and_no_xml_can():
    bad = "x\n::error::owned\x1b[2J\x00\ud800\u202e##[error]"
    one = judgement(bad, (bad, bad))
    for text in (markdown(one), junit(one)):
        assert text.isascii()
        assert text.replace("\n", "").isprintable()
        assert not re.search(r"^\s*::|##\w*\[", text, re.MULTILINE)
    ElementTree.fromstring(junit(one))


def test_json_is_plain():
    document = json.loads(json.dumps(judgement().to_dict(), allow_nan=False))
    assert document["passed"] is False
    assert document["gates"][1] == {
        "gate": "fail-over",
        "given": "gap=2",
        "metric": "gap",
        "value": 3.0,
        "standard_error": 0.0,
        "baseline": None,
        "required": 2.0,
        "bound": "at most",
        "passed": False,
    }


def test_estimates_show_their_errors():
    values = {"gap": 1.95, "standard_errors": {"gap": 0.05}}
    one = Judgement("p", "", judge([fail_over("gap=2")], values))
    assert "| `gap` | 1.95 ± 0.05 |  | at most 2 | ok |" in markdown(one)
    assert "gap is 1.95 ± 0.05, required is at most 2<" in junit(one)
    assert one.to_dict()["gates"][0]["standard_error"] == 0.05
