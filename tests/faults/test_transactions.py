"""Each operation of each writer fails once: afterwards all files are the old ones or all are new.

Only a process that is killed between two renames, or renames that fail for ever, may leave some old
and some new. Then a plan is refused.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchplan import InputError, OutputError, mine_negatives, plan
from batchplan.data import Embeddings
from batchplan.gates import check_plan, fail_under, junit
from batchplan.plans import Plan
from batchplan.plans.negatives import Negatives
from batchplan.quality import EvaluationOptions, RowFacts
from batchplan.report.contents import gather
from batchplan.report.write import draw
from batchplan.runtime import Runtime

from .copies import Copies, in_a_copy
from .faults import ERRORS, KILLED, KILLS, OPERATIONS, SHORT, SIGNALS, armed
from .writers import save, write_check, write_report

ROOT = Path(__file__).parents[2]
SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")
WRITERS = (*(f"plan{suffix}" for suffix in SUFFIXES), "table", "report", "check")


@dataclass
class Writer:
    """Writes one of two contents, and loads what is there where that can be asked.

    Attributes:
        write: writes content 0 or 1 into the working directory.
        load: which content is found, None for neither; raises what a user would see.
    """

    write: Callable[[int], object]
    load: Callable[[], int | None] | None = None


@pytest.fixture(scope="session")
def data():
    rng = np.random.default_rng(0)
    return Embeddings.from_arrays(
        rng.standard_normal((40, 6)).astype(np.float32), ids=[f"row {i}" for i in range(40)]
    )


@pytest.fixture(scope="session")
def writer_of(data):
    """Writers by name. What one writes is computed once, so that a fault costs milliseconds."""
    plans = [plan(data, planner="random", batch_size=8, seed=seed) for seed in (0, 1)]
    made = {f"plan{suffix}": partial(_plan_writer, plans, suffix, data) for suffix in SUFFIXES}
    made["table"] = partial(_table_writer, data)
    made["report"] = lambda: Writer(partial(write_report, _reports(plans, data)))
    made["check"] = lambda: Writer(partial(write_check, [_outputs(one, data) for one in plans]))
    return cache(lambda name: made[name]())


def _plan_writer(plans, suffix, data):
    path = f"plan{suffix}"

    def load():
        rows = Plan.load(path).rows.tolist()
        return _index([one.rows.tolist() for one in plans], rows)

    return Writer(partial(save, plans, path, data.ids), load)


def _table_writer(data):
    tables = [mine_negatives(data, planner="scns", batch_size=8, per_row=count) for count in (2, 3)]

    def load():
        return _index(
            [len(table.negatives[0]) for table in tables],
            Negatives.load("table.parquet").per_anchor,
        )

    return Writer(partial(save, tables, "table.parquet", data.ids), load)


def _reports(plans, data):
    """The pages with their last two pictures; the others are written in the same way."""
    options, runtime = EvaluationOptions(random_trials=2), Runtime()
    drawn = [
        draw(gather({"plan": one}, data, RowFacts(), options, runtime), "report.html", "pictures")
        for one in plans
    ]
    return [dict(list(files.items())[-3:]) for files in drawn]


def _outputs(plan, data):
    gates, options = [fail_under("loss_train=0")], EvaluationOptions(random_trials=2)
    judgement, measured = check_plan(plan, data, RowFacts(), gates, options, Runtime())
    xml, baseline = junit(judgement).encode(), measured.to_bytes()
    return {Path("junit.xml"): xml, Path("base.json"): baseline}


def _index(known: list[Any], found: Any) -> int | None:
    return known.index(found) if found in known else None


def shown(folder):
    """The content of every file that a user sees."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def hidden(folder):
    return list(folder.rglob(".*"))


@dataclass
class Case:
    """A writer that replaces what is there: what was there, and what will be."""

    name: str
    writer: Writer
    folder: Path
    before: dict[str, bytes]
    after: dict[str, bytes]

    def reset(self) -> None:
        """Make it as it was before."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, content in self.before.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    def require_whole(self, where: str) -> None:
        """Require that each file is the old or the new one, and that a mix is refused."""
        found = shown(self.folder)
        assert found.keys() >= self.before.keys(), where
        for name, content in found.items():
            assert content in (self.before.get(name), self.after.get(name)), where
        if self.writer.load is None or not self.before:
            return
        if found in (self.before, self.after):
            assert self.writer.load() == (found == self.after), where
        elif self.name == "comparison":  # it makes the plan again
            assert self.writer.load() is None, where
        else:
            with pytest.raises(InputError, match="a save was cut short"):
                self.writer.load()


@pytest.fixture(params=WRITERS)
def cases(request, writer_of, folder):
    """Of one writer, that writes content 1: over content 0, and where there is nothing."""
    made = []
    for first in ([0], []):
        case = Case(request.param, writer_of(request.param), folder, {}, {})
        case.reset()
        for one in first:
            case.writer.write(one)
        before = shown(folder)
        case.writer.write(1)
        case.before, case.after = before, shown(folder)
        assert case.before != case.after
        made.append(case)
    return made


def strikes(injector, cases, faults, operations=OPERATIONS):
    """Arm each fault at the 1st operation of each kind, the 2nd, and so on up to the last."""
    for case, operation in itertools.product(cases, operations):
        case.reset()
        injector.arm(operation, 0, faults[0])  # there is no 0th
        case.writer.write(1)
        injector.disarm()
        last = injector.seen
        for fault, nth in itertools.product(faults, range(1, last + 1)):
            case.reset()
            injector.arm(operation, nth, fault)
            yield case, fault, operation, f"{fault} at {operation} {nth}, over {bool(case.before)}"
            injector.disarm()


def documented(name, kind):
    """The number of faults that docs/reliability.md states."""
    table = (ROOT / "docs" / "reliability.md").read_text()
    heads = re.search(r"^\| Writer \|(.*)\|$", table, re.MULTILINE)[1].split("|")
    row = rf"^\|[^|]*`{re.escape(name)}`[^|]*\|(.*)\|$"
    cells = re.search(row, table, re.MULTILINE)[1].split("|")
    return int(dict(zip(map(str.strip, heads), cells, strict=True))[kind])


def test_an_error_leaves_all_old_or_all_new(cases, injector):
    struck = 0
    for case, fault, operation, where in strikes(injector, cases, ERRORS):
        message = None
        try:
            case.writer.write(1)
        except OutputError as error:
            message = str(error)
        injector.disarm()
        struck += bool(injector.fired)
        where = f"{where}: {message}"
        if message is None:
            assert shown(case.folder) == case.after, where
        else:
            assert os.strerror(fault.how) in message, where
            if operation == "replace" and fault.ever and case.before:  # nor can old ones come back
                assert "some may be new and some old" in message, where
                case.require_whole(where)
            else:
                assert "are unchanged" in message, where
                assert shown(case.folder) == case.before, where
        left = operation == "unlink" and fault.ever  # nothing can be removed
        assert left or not hidden(case.folder), where
    assert struck == documented(cases[0].name, "errors")


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_all_old_or_all_new(cases, injector):
    struck = 0
    for case, _, _, where in strikes(injector, cases, SIGNALS):
        interrupted = False
        try:
            case.writer.write(1)
        except KeyboardInterrupt:
            interrupted = True
        injector.disarm()
        struck += bool(injector.fired)
        assert interrupted == bool(injector.fired), where
        assert shown(case.folder) in (case.before, case.after), where
        assert not hidden(case.folder), where
    assert struck == documented(cases[0].name, "Ctrl-C")


def test_short_writes_are_made_whole(cases, injector):
    struck = 0
    for case, _, _, where in strikes(injector, cases, SHORT, ("write",)):
        case.writer.write(1)
        struck += bool(injector.fired)
        assert shown(case.folder) == case.after, where
        assert not hidden(case.folder), where
    assert struck == documented(cases[0].name, "short writes")


@pytest.fixture(scope="module")
def copies():
    with Copies() as copies:
        yield copies


def test_a_killed_process_leaves_each_file_old_or_new(cases, injector, copies):
    struck = 0
    for case, _, _, where in strikes(injector, cases, KILLS):
        work = partial(armed, injector.how(), partial(case.writer.write, 1))
        injector.disarm()
        # what `check` has judged loads torch
        status = in_a_copy(work) if case.name == "check" else copies.run(work)
        assert status in (0, KILLED), where
        injector.fired = int(status == KILLED)
        struck += injector.fired
        injector.disarm()
        case.require_whole(where)
        case.writer.write(1)
        assert shown(case.folder) == case.after, where
    assert struck == documented(cases[0].name, "kills")
