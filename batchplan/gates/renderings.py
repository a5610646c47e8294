"""Writes judgements as Markdown, for people, and as JUnit XML, for CI systems."""

import re
from xml.etree import ElementTree

from batchplan.gates.verdicts import Judgement, Outcome, number
from batchplan.text import clean, one_line

_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#!|~&])")


def markdown(judgement: Judgement) -> str:
    """Return a Markdown heading and table, with a line break at the end."""
    lines = [f"### {_plain(judgement.plan)}: {judgement.outcome}", "", _plain(judgement.about), ""]
    if judgement.verdicts:
        lines += [
            "| Metric | Value | Baseline | Required | Verdict |",
            "| --- | ---: | ---: | ---: | --- |",
            *map(_row, judgement.verdicts),
            "",
        ]
    for warning in judgement.warnings:
        lines += [f"Warning: {_plain(warning)}", ""]
    return "\n".join(lines)


def junit(judgement: Judgement) -> str:
    """Return JUnit XML with a test case for each gate, and a line break at the end.

    JUnit XML has no standard. These are the elements and attributes of Ant's JUnit task, which
    Jenkins, GitLab and the reporters of GitHub read. There are no times.
    """
    counts = {
        "tests": str(len(judgement.verdicts)),
        "failures": str(judgement.failures),
        "errors": "0",
        "skipped": "0",
    }
    suites = ElementTree.Element("testsuites", {"name": "batchplan check", **counts})
    name = f"batchplan check {judgement.plan}"
    suite = ElementTree.SubElement(suites, "testsuite", {"name": name, **counts})
    for verdict in judgement.verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname="batchplan.check", name=verdict.gate.name
        )
        sentence = _sentence(verdict)
        if not verdict.passed:
            failure = ElementTree.SubElement(case, "failure", message=sentence, type="gate")
            failure.text = f"{judgement.plan}: {judgement.about}\n{sentence}"
        ElementTree.SubElement(case, "system-out").text = sentence
    if judgement.warnings:
        ElementTree.SubElement(suite, "system-err").text = "\n".join(judgement.warnings)
    for element in suites.iter():
        element.attrib = {name: one_line(value) for name, value in element.attrib.items()}
        element.text = element.text and clean(element.text)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _sentence(verdict: Outcome) -> str:
    before = "" if verdict.baseline is None else f", the baseline has {number(verdict.baseline)}"
    return f"{verdict.gate.metric} is {verdict.shown}, required is {verdict.demand}{before}"


def _row(verdict: Outcome) -> str:
    before = "" if verdict.baseline is None else number(verdict.baseline)
    outcome = "ok" if verdict.passed else "**FAILED**"
    return (
        f"| `{verdict.gate.metric}` | {verdict.shown} | {before} | {verdict.demand} | {outcome} |"
    )


def _plain(text: str) -> str:
    """Escape the markup of Markdown in a text."""
    return _MARKUP.sub(r"\\\1", one_line(text))
