"""Gates: what the metrics of a plan must reach, alone or against a baseline."""

from batchplan.gates.baseline import Baseline, comparable_settings
from batchplan.gates.checking import check_plan
from batchplan.gates.gate import Gate, fail_over, fail_regress, fail_under
from batchplan.gates.judged import JUDGED, Judged, value_of
from batchplan.gates.renderings import junit, markdown
from batchplan.gates.verdicts import Judgement, Verdict, judge

__all__ = [
    "JUDGED",
    "Baseline",
    "Gate",
    "Judged",
    "Judgement",
    "Verdict",
    "check_plan",
    "comparable_settings",
    "fail_over",
    "fail_regress",
    "fail_under",
    "judge",
    "junit",
    "markdown",
    "value_of",
]
